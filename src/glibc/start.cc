// How a program's main begins. A program that was linked with glibc 2.34 or later leaves its constructors to the C
// library; older ones expect that the program brings a function that runs them. Here that function is.
#include <elf.h>
#include <link.h>

#include <cstddef>

namespace {

using Main = int (*)(int, char**, char**);
using Constructor = void (*)(int, char**, char**);

struct Constructors {
  ElfW(Addr) first = 0;
  Constructor* others = nullptr;
  size_t count = 0;
};

// Of the first object, which is the program: the linker itself runs the libraries' constructors.
int FindConstructors(dl_phdr_info* program, size_t, void* data) {
  auto& found = *static_cast<Constructors*>(data);
  const ElfW(Dyn)* dynamic = nullptr;
  for (int i = 0; i < program->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = program->dlpi_phdr[i];
    if (segment.p_type == PT_DYNAMIC)
      dynamic = reinterpret_cast<const ElfW(Dyn)*>(program->dlpi_addr + segment.p_vaddr);
  }
  for (; dynamic && dynamic->d_tag != DT_NULL; ++dynamic) {
    const ElfW(Addr) address = program->dlpi_addr + dynamic->d_un.d_ptr;
    if (dynamic->d_tag == DT_INIT) found.first = address;
    if (dynamic->d_tag == DT_INIT_ARRAY) found.others = reinterpret_cast<Constructor*>(address);
    if (dynamic->d_tag == DT_INIT_ARRAYSZ) found.count = dynamic->d_un.d_val / sizeof(Constructor);
  }
  return 1;  // no further object
}

// Not while the objects are listed: that holds the linker's lock, which a constructor may need on another thread.
void RunConstructors(int argc, char** argv, char** envp) {
  Constructors found;
  dl_iterate_phdr(FindConstructors, &found);
  if (found.first) reinterpret_cast<void (*)()>(found.first)();
  for (size_t i = 0; i < found.count; ++i) found.others[i](argc, argv, envp);
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

#ifdef __x86_64__
__asm__(".symver FirstStartMain,__libc_start_main@GLIBC_2.2.5");
#else
__asm__(".symver FirstStartMain,__libc_start_main@GLIBC_2.17");
#endif
int FirstStartMain(Main, int, char**, Constructor, void (*)(), void (*)(), void*);

// Called by the first instructions of a program, once.
int __libc_start_main(Main main, int argc, char** argv, Constructor constructors, void (*destructors)(),
                      void (*linker_end)(), void* stack_end) {
  return FirstStartMain(main, argc, argv, constructors ? constructors : RunConstructors, destructors, linker_end,
                        stack_end);
}

}  // extern "C"
#pragma GCC visibility pop
