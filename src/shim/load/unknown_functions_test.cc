#include "shim/load/unknown_functions.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tessera::shim {
namespace {

std::vector<std::string> said, kept;

TEST(UnknownFunctions, EachIsKeptAndToldOnce) {
  NoteUnknown("cuFirst");
  OnUnknown([](const char* name) { said.emplace_back(name); });
  NoteUnknown("cuFirst");
  const std::string longer(200, 'x');
  NoteUnknown(longer.c_str());
  NoteUnknown(longer.c_str());
  for (int i = 0; i < 2 * kMostUnknown; ++i) NoteUnknown(("cu" + std::to_string(i)).c_str());
  EachUnknown([](const char* name) { kept.emplace_back(name); });
  ASSERT_EQ(kept.size(), static_cast<std::size_t>(kMostUnknown));
  EXPECT_EQ(said.size(), kept.size() - 1);
  EXPECT_EQ(kept[0], "cuFirst");
  EXPECT_EQ(kept[1], std::string(kUnknownNameBytes - 1, 'x'));
  EXPECT_EQ(said[0], kept[1]);
}

}  // namespace
}  // namespace tessera::shim
