#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera::server {

// Lets a hostile program speak to a daemon: `script` is a list of packets, each a length byte pair (little endian, of
// which 13 bits count), an opcode byte and that many bytes. The opcode's low bits choose who sends it (one of four
// connections) and whether the bytes are taken as they are or put behind a right header of a type that the bytes
// choose, so that a fuzzer gets past the frame. Returns whether the books are right afterwards: all memory and the
// token are free once everybody has left, and a good program still gets both.
bool RunScript(std::span<const std::uint8_t> script);

}  // namespace tessera::server
