#pragma once

#include <string_view>

namespace tessera::face {

// A file of the page, as it was in src/face/page when the daemon was built. For ever.
struct Asset {
  std::string_view path;   // in the API: "/", "/page/main.js"
  std::string_view type;   // for Content-Type
  std::string_view bytes;  // all of it
  std::string_view tag;    // for ETag, with its quotes; other bytes have another one
};

// Null if the page has no such file. Any thread.
const Asset* FindAsset(std::string_view path);

}  // namespace tessera::face
