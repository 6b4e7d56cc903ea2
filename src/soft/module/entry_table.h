#pragma once

#include <string_view>

namespace tessera::soft {

// The address of an exported function of this library, null if there is none of this name.
void* FindEntry(std::string_view symbol);

}  // namespace tessera::soft
