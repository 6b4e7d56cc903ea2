#pragma once

namespace tessera::shim {

// Writes one line on stderr, "tessera: …", without touching the C library's buffers. For messages that a person needs.
[[gnu::format(printf, 1, 2)]] void Say(const char* format, ...);

}  // namespace tessera::shim
