// Included before everything else in the shims: binds the C library's functions that glibc 2.29 and later moved or
// renewed to their first versions, so that the shims load from glibc 2.28 on. shim_symbols_test.py checks the result.
#pragma once

#include "base/processor/processor.h"

#if defined(__x86_64__)
#define TESSERA_GLIBC_SETNAME "GLIBC_2.12"
#else
#define TESSERA_GLIBC_SETNAME TESSERA_GLIBC_FIRST
#endif

__asm__(".symver dlopen,dlopen@" TESSERA_GLIBC_FIRST);
__asm__(".symver dlsym,dlsym@" TESSERA_GLIBC_FIRST);
__asm__(".symver dlvsym,dlvsym@" TESSERA_GLIBC_FIRST);
__asm__(".symver dladdr,dladdr@" TESSERA_GLIBC_FIRST);
__asm__(".symver dlerror,dlerror@" TESSERA_GLIBC_FIRST);
__asm__(".symver pthread_create,pthread_create@" TESSERA_GLIBC_FIRST);
__asm__(".symver pthread_detach,pthread_detach@" TESSERA_GLIBC_FIRST);
__asm__(".symver pthread_mutex_trylock,pthread_mutex_trylock@" TESSERA_GLIBC_FIRST);
__asm__(".symver pthread_once,pthread_once@" TESSERA_GLIBC_FIRST);
__asm__(".symver pthread_setname_np,pthread_setname_np@" TESSERA_GLIBC_SETNAME);
__asm__(".symver pthread_sigmask,pthread_sigmask@" TESSERA_GLIBC_FIRST);
