// The few functions of the C++ runtime that the shims need, without exceptions behind them: the runtime's own would
// bring the unwinder, and with it symbols that glibc 2.28 does not have, into every program.
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <new>
#include <string_view>

#include "base/fork_mutex.h"

namespace {

[[noreturn]] void Die(std::string_view why) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, why.data(), why.size());
  abort();
}

}  // namespace

void* operator new(std::size_t bytes) {
  void* memory = malloc(bytes);
  if (!memory) Die("tessera: out of host memory\n");
  return memory;
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  void* memory = nullptr;
  if (posix_memalign(&memory, static_cast<std::size_t>(alignment), bytes) != 0) Die("tessera: out of host memory\n");
  return memory;
}
void operator delete(void* memory) noexcept { free(memory); }
void operator delete(void* memory, std::size_t) noexcept { free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { free(memory); }

// Functions that the standard library's headers call where they would throw. The shim never gets there.
namespace std {
void __throw_length_error(const char*) { Die("tessera: a container grew beyond all bounds\n"); }
void __throw_logic_error(const char*) { Die("tessera: a string was made of nothing\n"); }
void __throw_bad_alloc() { Die("tessera: out of host memory\n"); }
void __throw_bad_array_new_length() { Die("tessera: out of host memory\n"); }
void __throw_out_of_range_fmt(const char*, ...) { Die("tessera: an index was out of range\n"); }
void __throw_system_error(int) { Die("tessera: a mutex failed\n"); }
}  // namespace std

// Function-local statics (Itanium C++ ABI 3.3.3): the guard's first byte says that the static stands. One lock for all,
// recursive because one initialiser may need another static; no initialiser of the shims waits for another thread.
extern "C" {
static pthread_mutex_t guard_mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

// No ForkMutex, because it is recursive. A static whose initialiser another thread was in is initialised once more.
[[gnu::constructor]] static void RemakeGuardInChildren() {
  tessera::OnForkInChild([] { guard_mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP; });
}

int __cxa_guard_acquire(char* guard) {
  if (std::atomic_ref<char>(*guard).load(std::memory_order_acquire)) return 0;
  pthread_mutex_lock(&guard_mutex);
  if (!*guard) return 1;
  pthread_mutex_unlock(&guard_mutex);
  return 0;
}

void __cxa_guard_release(char* guard) {
  std::atomic_ref<char>(*guard).store(1, std::memory_order_release);
  pthread_mutex_unlock(&guard_mutex);
}
}
