#include "face/http/page_answers.h"

#include "face/page/asset.h"

namespace tessera::face {
namespace {

// Scripts and styles are files of the page: none stands in the document, and none comes from elsewhere.
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

}  // namespace

bool IsForPage(const httplib::Request& request) {
  return (request.method == "GET" || request.method == "HEAD") && FindAsset(request.path) != nullptr;
}

void AnswerWithPage(const httplib::Request& request, httplib::Response& response) {
  const Asset* asset = FindAsset(request.path);
  if (!asset) {
    response.status = 404;
    return;
  }
  response.set_header("Content-Security-Policy", kPolicy);
  response.set_header("X-Frame-Options", "DENY");
  response.set_header("Referrer-Policy", "no-referrer");
  response.set_header("Cross-Origin-Opener-Policy", "same-origin");
  response.set_header("Cross-Origin-Resource-Policy", "same-origin");
  // Asked for again each time, and not sent again unless the daemon is another version.
  response.set_header("Cache-Control", "no-cache");
  const std::string tag(asset->tag);
  response.set_header("ETag", tag);
  if (request.get_header_value("If-None-Match") == tag) {
    response.status = 304;
    return;
  }
  response.set_content(asset->bytes.data(), asset->bytes.size(), std::string(asset->type));
}

}  // namespace tessera::face
