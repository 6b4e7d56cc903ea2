#include "face/http/origin.h"

#include <gtest/gtest.h>

namespace tessera::face {
namespace {

TEST(Origin, ProgramsAndTheOwnPageMayAsk) {
  EXPECT_TRUE(CheckOrigin({}));
  for (const char* host : {"localhost", "tessera", "localhost:9000", "127.0.0.1:9000", "[::1]:9000", "[::1]",
                           "10.0.0.7", "/run/tessera/api.sock", "%2Frun%2Ftessera%2Fapi.sock"})
    EXPECT_TRUE(CheckOrigin({.host = host})) << host;
  EXPECT_TRUE(CheckOrigin({.host = "localhost:9000", .origin = "http://localhost:9000", .fetch_site = "same-origin"}));
  EXPECT_TRUE(CheckOrigin({.host = "[::1]:9000", .origin = "http://[::1]:9000"}));
  EXPECT_TRUE(CheckOrigin({.host = "localhost:9000", .fetch_site = "none"})) << "a person entered the address";
}

TEST(Origin, OtherPagesMayNot) {
  for (const char* origin :
       {"http://evil.example", "null", "http://localhost:9001", "https://localhost:9000", "http://localhost"})
    EXPECT_FALSE(CheckOrigin({.host = "localhost:9000", .origin = origin})) << origin;
  for (const char* site : {"cross-site", "same-site", "x"})
    EXPECT_FALSE(CheckOrigin({.host = "localhost:9000", .fetch_site = site})) << site;
  EXPECT_FALSE(CheckOrigin({.origin = "http://evil.example"}));
}

// A page of evil.example whose name server says 127.0.0.1 asks as if it were its own, and without Sec-Fetch-Site.
TEST(Origin, NamesThatANameServerKnowsAreRefused) {
  for (const char* host : {"evil.example", "evil.example:9000", "localhost.evil.example", "localhost.",
                           "127.0.0.1.evil.example", "127.1", "0x7f.0.0.1", "[::1.evil]", "[evil.example]:9000"})
    EXPECT_FALSE(CheckOrigin({.host = host})) << host;
  EXPECT_EQ(CheckOrigin({.host = "evil.example", .origin = "http://evil.example"}).error().code, EPERM);
}

}  // namespace
}  // namespace tessera::face
