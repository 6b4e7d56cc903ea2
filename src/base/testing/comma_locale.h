#pragma once

#include <gtest/gtest.h>
#include <locale.h>
#include <stdlib.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/testing/temporary_folder.h"

namespace tessera {

// While it lives, the program's numbers have a decimal comma. The locale is made here, because machines that test have
// few of them: a file as localedef(1) writes it (glibc, locale/localeinfo.h: a magic number, the number of values,
// where each begins, the values).
class CommaLocale {
 public:
  CommaLocale() {
    std::filesystem::create_directory(folder_.path() + "/comma");
    constexpr std::uint32_t kMagic = 0x20031115 ^ LC_NUMERIC;
    const std::uint32_t begins[] = {32, 34, 35, 36, 40, 44};
    std::string file;
    const auto add = [&](std::uint32_t word) { file.append(reinterpret_cast<const char*>(&word), sizeof word); };
    add(kMagic);
    add(std::size(begins));
    for (const std::uint32_t begin : begins) add(begin);
    file += std::string(
        ",\0"
        "\0"
        "\0",
        4);  // the point, no mark between thousands, no groups
    add(',');
    add(0);
    file += std::string("UTF-8\0", 6);
    std::ofstream(folder_.path() + "/comma/LC_NUMERIC") << file;
    setenv("LOCPATH", folder_.path().c_str(), 1);
    EXPECT_NE(setlocale(LC_NUMERIC, "comma"), nullptr);
    EXPECT_EQ(std::strtod("1,5", nullptr), 1.5);
  }
  ~CommaLocale() {
    setlocale(LC_NUMERIC, "C");
    unsetenv("LOCPATH");
  }
  CommaLocale(const CommaLocale&) = delete;

 private:
  const TemporaryFolder folder_;
};

}  // namespace tessera
