#include "cli/doctor/exports.h"

#include <elf.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>
#include <vector>

namespace tessera::cli {
namespace {

// `count` structs at an offset of the file; none where they do not lie in it.
template <typename T>
std::vector<T> Read(std::string_view file, std::uint64_t offset, std::uint64_t count) {
  if (offset > file.size() || count > (file.size() - offset) / sizeof(T)) return {};
  std::vector<T> structs(count);
  if (count > 0) std::memcpy(structs.data(), file.data() + offset, count * sizeof(T));
  return structs;
}

}  // namespace

Result<std::set<std::string>> ExportsOf(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return FailErrno("cannot read " + path);
  const std::string file((std::istreambuf_iterator<char>(stream)), {});
  const auto header = Read<Elf64_Ehdr>(file, 0, 1);
  if (header.empty() || std::memcmp(header[0].e_ident, ELFMAG, SELFMAG) != 0 ||
      header[0].e_ident[EI_CLASS] != ELFCLASS64)
    return Fail(EINVAL, path + " is no library of this architecture");
  const auto sections = Read<Elf64_Shdr>(file, header[0].e_shoff, header[0].e_shnum);
  std::set<std::string> names;
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_DYNSYM || section.sh_link >= sections.size()) continue;
    const Elf64_Shdr& strings = sections[section.sh_link];
    for (const Elf64_Sym& symbol : Read<Elf64_Sym>(file, section.sh_offset, section.sh_size / sizeof(Elf64_Sym))) {
      if (symbol.st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol.st_info) != STT_FUNC) continue;
      const std::uint64_t at = strings.sh_offset + symbol.st_name;
      if (symbol.st_name >= strings.sh_size || at >= file.size()) continue;
      names.emplace(file.c_str() + at);
    }
  }
  return names;
}

std::set<std::string> UnknownTo(const std::set<std::string>& shim, const std::set<std::string>& driver) {
  std::set<std::string> unknown;
  std::ranges::copy_if(driver, std::inserter(unknown, unknown.end()), [&](const std::string& name) {
    const bool function =
        name.size() > 2 && name.starts_with("cu") && std::isupper(static_cast<unsigned char>(name[2]));
    return function && !shim.contains(name);
  });
  return unknown;
}

}  // namespace tessera::cli
