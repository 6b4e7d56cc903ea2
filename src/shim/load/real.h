// The real driver library and its functions.
#pragma once

#include <cstddef>
#include <string_view>

#include "cuda/cuda_abi.h"
#include "symbol_index.h"

// One slot per symbol of libcuda.symbols. Until the first call of anything every slot leads to the loader.
extern "C" void* tessera_real_table[];
// Where each slot leads at first: to tessera_find.
extern "C" void* const tessera_stub_table[];
// The shim's function of each name, which programs are to call; and 1 where that is more than a jump.
extern "C" void* const tessera_entry_table[];
extern "C" const unsigned char tessera_changed_table[];

namespace tessera::shim {

inline constexpr unsigned kNoSymbol = kSymbols;

// Loads the driver if it is not loaded yet. False if there is none: then every slot leads to a function that returns
// CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, and one line on stderr says why. Any thread.
bool LoadReal();

// Where the slot of a symbol leads now. Any thread.
inline void* RealAddress(unsigned symbol) { return __atomic_load_n(&tessera_real_table[symbol], __ATOMIC_ACQUIRE); }

// Address of a symbol that only the real library has (a newer driver's), or null.
void* RealSymbol(const char* name);

// The index of the function that lies at `address` in the real driver, or kNoSymbol.
unsigned IndexOfRealAddress(const void* address);

// The shim's own version string, exported so that it can be told from a driver.
extern "C" const char tessera_shim_version[];

// The index of `name` in libcuda.symbols, or kNoSymbol.
unsigned IndexOfName(std::string_view name);

}  // namespace tessera::shim

// The real driver's `name`, with the type of the hook of that name.
#define REAL(name) (reinterpret_cast<decltype(&name)>(tessera::shim::RealAddress(tessera::shim::k_##name)))
// The same where the shim has no hook of that name: REAL_AS(cuCtxGetCurrent, CUcontext*)(&context).
#define REAL_AS(name, ...) \
  (reinterpret_cast<tessera::cuda::CUresult (*)(__VA_ARGS__)>(tessera::shim::RealAddress(tessera::shim::k_##name)))
