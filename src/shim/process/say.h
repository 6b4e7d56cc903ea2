#pragma once

namespace tessera::shim {

// One line on stderr, "tessera: …", without touching the C library's buffers. For what a person must know.
[[gnu::format(printf, 1, 2)]] void Say(const char* format, ...);

}  // namespace tessera::shim
