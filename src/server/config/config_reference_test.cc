#include "server/config/config_reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "server/config/config_keys.h"

namespace tessera::server {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string Read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// TESSERA_UPDATE_DOCS=1 writes the two.
TEST(ConfigReference, TheDocumentHasTheTable) {
  const std::string path = TESSERA_SOURCE "/docs/reference/config.md";
  std::string text = Read(path);
  const std::size_t begin = text.find("| key | default"), end = text.find("\n\n", begin);
  ASSERT_NE(end, std::string::npos);
  if (std::getenv("TESSERA_UPDATE_DOCS")) {
    text.replace(begin, end + 1 - begin, ConfigTable());
    std::ofstream(path) << text;
  }
  EXPECT_THAT(text, HasSubstr("\n\n" + ConfigTable() + "\n"))
      << "TESSERA_UPDATE_DOCS=1 server_test --gtest_filter='ConfigReference.*' makes it anew";
}

TEST(ConfigReference, TheExampleHasEveryKey) {
  const std::string path = TESSERA_SOURCE "/deploy/tesserad.toml";
  if (std::getenv("TESSERA_UPDATE_DOCS")) std::ofstream(path) << ConfigExample();
  EXPECT_EQ(Read(path), ConfigExample());
  // Lines behind a # are valid as well, but for those whose default is "", which is not always a value.
  std::istringstream lines(ConfigExample());
  std::string uncommented;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# ") && line.find(" = ") != std::string::npos && line.find("= \"\"") == std::string::npos)
      line.erase(0, 2);
    uncommented += line + "\n";
  }
  const auto config = ParseConfig(uncommented, "example");
  ASSERT_TRUE(config) << config.error().Text();
  EXPECT_GT(config->given.size(), 15u);
  EXPECT_TRUE(Difference({}, *config).empty()) << Difference({}, *config).front().key;
}

TEST(ConfigReference, TheManualHasEveryKey) {
  const std::string manual = ConfigManual();
  for (const ConfigKey& key : ConfigKeys()) {
    std::string name = std::string(key.name).substr(std::string_view(key.name).rfind('.') + 1);
    for (std::size_t i = 0; (i = name.find('_', i)) != std::string::npos; i += 2) name.insert(i, "\\");
    EXPECT_THAT(manual, HasSubstr("\n*" + name + "* (default ")) << key.name;
  }
  EXPECT_THAT(manual, Not(HasSubstr("](")));
  EXPECT_THAT(manual, Not(HasSubstr(".md")));
}

}  // namespace
}  // namespace tessera::server
