#include "face/http/page_answers.h"

#include <gmock/gmock.h>

#include "face/testing/http_server_test.h"

namespace tessera::face {
namespace {

using testing::HasSubstr;
using testing::Not;

using PageTest = HttpServerTest;

TEST_F(PageTest, AllowsItsOwnFilesAndNothingElse) {
  for (const auto& [path, type] : {std::pair("/", "text/html"), std::pair("/page/main.js", "text/javascript"),
                                   std::pair("/page/page.css", "text/css")}) {
    const auto file = client_.Get(path);
    ASSERT_TRUE(file && file->status == 200) << path;
    EXPECT_THAT(file->get_header_value("Content-Type"), HasSubstr(type));
    EXPECT_EQ(file->get_header_value("X-Content-Type-Options"), "nosniff");
    const std::string policy = file->get_header_value("Content-Security-Policy");
    for (const char* part : {"default-src 'none'", "frame-ancestors 'none'", "script-src 'self'", "base-uri 'none'"})
      EXPECT_THAT(policy, HasSubstr(part));
    EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
    EXPECT_THAT(policy, Not(HasSubstr("http")));
    if (path[1] == 0) {
      for (const char* inline_code : {"style=", "onclick=", "<style", "<script>", "http://", "https://"})
        EXPECT_THAT(file->body, Not(HasSubstr(inline_code)));
    }
  }
}

TEST_F(PageTest, IsNotSentAgainAsLongAsItIsTheSame) {
  const auto first = client_.Get("/page/main.js");
  ASSERT_TRUE(first);
  const std::string tag = first->get_header_value("ETag");
  EXPECT_EQ(first->get_header_value("Cache-Control"), "no-cache");
  const auto again = client_.Get("/page/main.js", {{"If-None-Match", tag}});
  ASSERT_TRUE(again);
  EXPECT_EQ(again->status, 304);
  EXPECT_EQ(again->body, "");
  EXPECT_EQ(client_.Get("/page/main.js", {{"If-None-Match", "\"another\""}})->status, 200);
}

// Browsers ask for Brotli, which takes long.
TEST_F(PageTest, IsCompressedInTheQuickWayOnly) {
  client_.set_decompress(false);
  for (const char* path : {"/page/main.js", "/v1/overview"}) {
    EXPECT_EQ(client_.Get(path, {{"Accept-Encoding", "gzip, deflate, br"}})->get_header_value("Content-Encoding"),
              "gzip");
    EXPECT_EQ(client_.Get(path, {{"Accept-Encoding", "br"}})->get_header_value("Content-Encoding"), "");
  }
}

TEST_F(PageTest, HasNoOtherFiles) {
  for (const char* path : {"/page/", "/page/none.js", "/page/../v1/vgpus", "/page/embed.py", "/index.html"})
    EXPECT_EQ(Get(path).status, 404) << path;
  EXPECT_EQ(Post("/", "{}").status, 405);
  EXPECT_EQ(Delete("/page/main.js").status, 405);
}

TEST_F(PageTest, EveryAnswerIsOnlyWhatItSays) {
  for (const char* path : {"/", "/v1/gpus", "/metrics", "/v1/vgpus/none", "/none"})
    EXPECT_EQ(client_.Get(path)->get_header_value_count("X-Content-Type-Options"), 1u) << path;
}

TEST_F(PageTest, OtherPagesMayNotAskByThisSocket) {
  EXPECT_EQ(client_.Get("/v1/vgpus", {{"Host", "localhost:9000"}, {"Origin", "http://localhost:9000"}})->status, 200);
  EXPECT_EQ(client_.Get("/v1/vgpus", {{"Host", "evil.example:9000"}})->status, 403);
  const httplib::Headers forged = {{"Host", "localhost:9000"}, {"Origin", "http://evil.example"}};
  EXPECT_EQ(client_.Post("/v1/vgpus/x/freeze", forged, "", "text/plain")->status, 403);
  // With a body, which is not read, the answer may be cut off.
  const auto answer = client_.Post("/v1/vgpus", forged, R"({"name": "x"})", "text/plain");
  EXPECT_TRUE(!answer || answer->status == 403);
  EXPECT_EQ(Get("/v1/vgpus/x").status, 404) << "nothing was made";
}

TEST_F(PageTest, AnOverviewHasWhatWasJustChanged) {
  ASSERT_EQ(Get("/v1/overview").body["vgpus"].size(), 0u);
  for (const char* name : {"a", "b"}) {
    ASSERT_EQ(Post("/v1/vgpus", nlohmann::json{{"name", name}}.dump()).status, 201);
    EXPECT_EQ(Get("/v1/overview").body["vgpus"].back()["name"], name) << "without a pause, though answers are shared";
  }
  const auto overview = Get("/v1/overview").body;
  EXPECT_EQ(overview["gpus"].size(), 2u);
  EXPECT_EQ(overview["caller"]["operator"], true);
  EXPECT_EQ(overview["processes"].size(), 0u);
}

}  // namespace
}  // namespace tessera::face
