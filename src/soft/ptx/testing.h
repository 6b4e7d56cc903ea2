// Shared parts of the interpreter's tests: a device whose memory is what the test allocates.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <deque>
#include <expected>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "soft/ptx/ptx.h"

namespace tessera::soft::ptx::testing {

// What a module begins with.
inline constexpr std::string_view kHeader = ".version 8.0\n.target sm_90\n.address_size 64\n";

// Memory that lives as long as the device. Ranges do not touch, as allocations of a real device do not.
class Device : public AddressSpace, public Hooks {
 public:
  Range Find(std::uint64_t address) override {
    for (const auto& buffer : buffers_) {
      const auto begin = reinterpret_cast<std::uint64_t>(buffer.data());
      if (address >= begin && address < begin + buffer.size()) return {begin, begin + buffer.size()};
    }
    return {};
  }
  bool Progress(std::uint64_t thread_instructions) override {
    ++progress_calls;
    instructions += thread_instructions;
    return !on_progress || on_progress();
  }
  void Print(std::string_view text) override { printed += text; }
  Nanos GlobalTimer() override { return now += 1000; }

  std::uint64_t Allocate(std::size_t bytes) {
    return reinterpret_cast<std::uint64_t>(buffers_.emplace_back(bytes).data());
  }
  template <typename T>
  std::uint64_t Upload(const std::vector<T>& values) {
    const std::uint64_t address = Allocate(values.size() * sizeof(T));
    std::memcpy(reinterpret_cast<void*>(address), values.data(), values.size() * sizeof(T));
    return address;
  }
  template <typename T>
  std::vector<T> Download(std::uint64_t address, std::size_t count) const {
    std::vector<T> values(count);
    std::memcpy(values.data(), reinterpret_cast<const void*>(address), count * sizeof(T));
    return values;
  }
  // Parses a module and puts its variables into this memory.
  std::unique_ptr<Module> Load(std::string_view ptx) {
    auto parsed = Module::Parse(ptx);
    if (!parsed) {
      ADD_FAILURE() << parsed.error().Text();
      return nullptr;
    }
    std::unique_ptr<Module> module = std::move(*parsed);
    const auto& variables = module->variables();
    std::vector<std::uint64_t> addresses;
    for (std::size_t i = 0; i < variables.size(); ++i) {
      addresses.push_back(Allocate(variables[i].bytes));
      module->Place(i, addresses[i]);
    }
    for (std::size_t i = 0; i < variables.size(); ++i) {
      const auto bytes = module->InitialBytes(i);
      if (!bytes.empty()) std::memcpy(reinterpret_cast<void*>(addresses[i]), bytes.data(), bytes.size());
    }
    return module;
  }

  std::string printed;
  std::uint64_t instructions = 0;
  int progress_calls = 0;
  Nanos now = 0;
  std::function<bool()> on_progress;  // false aborts

 private:
  std::deque<std::vector<std::byte>> buffers_;
};

// The parameters of a launch, each at its own alignment.
class Arguments {
 public:
  template <typename... T>
  explicit Arguments(T... values) {
    (Add(values), ...);
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  template <typename T>
  void Add(T value) {
    const std::size_t offset = (bytes_.size() + alignof(T) - 1) / alignof(T) * alignof(T);
    bytes_.resize(offset + sizeof(T));
    std::memcpy(bytes_.data() + offset, &value, sizeof(T));
  }
  std::vector<std::byte> bytes_;
};

inline std::expected<void, Fault> TryLaunch(Device& device, const Module& module, std::string_view kernel,
                                            Launch launch, const Arguments& arguments) {
  const Kernel* found = module.Find(kernel);
  if (found == nullptr) return std::unexpected(Fault{Fault::kInvalidLaunch, "no kernel " + std::string(kernel)});
  launch.parameters = arguments.bytes();
  return Run(module, *found, launch, device, device);
}

template <typename... T>
void LaunchOk(Device& device, const Module& module, std::string_view kernel, Dim3 grid, Dim3 block, T... arguments) {
  const auto result = TryLaunch(device, module, kernel, {.grid = grid, .block = block}, Arguments(arguments...));
  EXPECT_TRUE(result.has_value()) << result.error().message;
}

// The text of a sample in testdata/.
std::string ReadSample(std::string_view name);

// A kernel with registers of all types (%p %h %r %f %d %l: pred, b16, b32, f32, f64, b64), %l0 holding the address of
// the thread's own Row of inputs and %l1 that of its outputs.
using Row = std::array<std::uint64_t, 8>;
std::string KernelAround(std::string_view body);

// Runs KernelAround(body) with one thread for each row of inputs and returns the rows of outputs.
std::vector<Row> Compute(std::string_view body, const std::vector<Row>& inputs);

// `instruction` with its operands made up: sources are the first words of a row and the result is its first word,
// whose registers are "h", "r", "f", "d" or "l". An empty kind ends the list.
std::string OneInstruction(std::string_view instruction, std::string_view result, std::string_view sources);

// `text` with every `mark` replaced.
std::string Replaced(std::string text, std::string_view mark, std::string_view by);

// Rows of interesting and random bits, a multiple of 45 of them.
std::vector<Row> ManyRows();

// Compares the low `bits` of the first word with what `expected` makes of each row.
void ExpectComputes(std::string_view instruction, std::string_view result, std::string_view sources, unsigned bits,
                    const std::function<std::uint64_t(const Row&)>& expected);

}  // namespace tessera::soft::ptx::testing
