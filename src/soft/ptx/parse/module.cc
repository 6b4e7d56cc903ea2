#include <algorithm>
#include <cstring>

#include "soft/ptx/parse/parser.h"
#include "soft/ptx/program.h"
#include "soft/ptx/ptx.h"

namespace tessera::soft::ptx {

Module::Module() : program_(std::make_unique<Program>()) {}
Module::~Module() = default;

Result<std::unique_ptr<Module>> Module::Parse(std::string_view ptx) {
  // Some callers of cuModuleLoadData count the terminating zero.
  if (const std::size_t zero = ptx.find('\0'); zero != ptx.npos) ptx = ptx.substr(0, zero);
  std::unique_ptr<Module> module(new Module);
  Parser parser(ptx, *module->program_, module->variables_, module->kernels_);
  if (Result<void> parsed = parser.Parse(); !parsed) return std::unexpected(parsed.error());
  return module;
}

const Kernel* Module::Find(std::string_view kernel) const {
  const auto found = std::ranges::find(kernels_, kernel, &Kernel::name);
  return found == kernels_.end() ? nullptr : &*found;
}

void Module::Place(std::size_t index, std::uint64_t address) {
  program_->variables[index].address = address;
  for (const Relocation& relocation : program_->relocations) {
    if (relocation.variable == index) program_->SetConstant(relocation.at, address + relocation.addend);
  }
}

std::vector<std::byte> Module::InitialBytes(std::size_t index) const {
  std::vector<std::byte> bytes = program_->variables[index].bytes;
  for (const Relocation& pointer : program_->variables[index].pointers) {
    const bool variable = pointer.variable != Relocation::kNoVariable;
    const std::uint64_t base = variable ? program_->variables[pointer.variable].address : 0;
    const std::uint64_t value = (base + pointer.addend) >> pointer.shift;
    std::memcpy(bytes.data() + pointer.at, &value, pointer.bytes);
  }
  return bytes;
}

}  // namespace tessera::soft::ptx
