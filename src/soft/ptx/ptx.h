// PTX on the CPU: parses the text that nvcc emits and runs its kernels, for the soft GPU.
//
//   auto module = Module::Parse(text);
//   for (i …) (*module)->Place(i, device address of variables()[i]), then write InitialBytes(i) there;
//   Run(**module, *(*module)->Find("kernel"), launch, memory, hooks);
//
// Device addresses are host addresses; AddressSpace says which of them are live. What the interpreter does not know is
// refused while parsing, with its line and name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace tessera::soft::ptx {

struct Program;  // the decoded form, see program.h

// A .global or .const variable of a module. The caller gives it a place in device memory.
struct Variable {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint64_t alignment = 1;
  bool constant = false;  // .const: cuModuleGetGlobal finds it like any other
  bool managed = false;   // .attribute(.managed)
};

// A kernel parameter as cuFuncGetParamInfo tells it.
struct Parameter {
  std::uint32_t offset = 0;
  std::uint32_t bytes = 0;
  std::uint32_t alignment = 1;
};

struct Kernel {
  std::string name;
  std::vector<Parameter> parameters;
  std::uint32_t parameter_bytes = 0;
  std::uint32_t static_shared_bytes = 0;
  std::uint32_t local_bytes = 0;     // per thread
  std::uint32_t registers = 0;       // 32-bit registers per thread, a guess
  std::uint32_t max_threads = 1024;  // .maxntid or .reqntid
  std::uint32_t function = 0;        // index into Program::functions
};

// Immutable once every variable has been placed; then any number of threads may run kernels of it.
class Module {
 public:
  // EINVAL for text that is not PTX, ENOTSUP for PTX that the soft GPU does not run; both name the line.
  static Result<std::unique_ptr<Module>> Parse(std::string_view ptx);
  ~Module();

  const std::vector<Variable>& variables() const { return variables_; }
  const std::vector<Kernel>& kernels() const { return kernels_; }
  const Kernel* Find(std::string_view kernel) const;  // nullptr if there is none

  // Tells where variables()[index] lies. Once for each variable, before the first Run.
  void Place(std::size_t index, std::uint64_t address);
  // The initial bytes of variables()[index]; may be shorter than the variable: the rest is zero. Pointers in it are
  // right only when all variables have been placed.
  std::vector<std::byte> InitialBytes(std::size_t index) const;

  const Program& program() const { return *program_; }

 private:
  Module();

  std::vector<Variable> variables_;
  std::vector<Kernel> kernels_;
  std::unique_ptr<Program> program_;
};

// Addresses [begin, end).
struct Range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// The device memory that a kernel may touch.
class AddressSpace {
 public:
  virtual ~AddressSpace() = default;
  // The longest live range around `address`, {0, 0} if it is not live. The interpreter remembers answers: a range must
  // stay mapped until a call of Hooks::Progress begins, and is asked for anew when that call has returned.
  virtual Range Find(std::uint64_t address) = 0;
};

// The services of its device that a running kernel calls. Called on the thread that runs it.
class Hooks {
 public:
  virtual ~Hooks() = default;
  // Called about every kProgressInterval instructions (one thread, one instruction) and at the end, with the number
  // since the last call. May block: the kernel is then preempted. False ends the kernel with Fault::kAborted.
  virtual bool Progress(std::uint64_t thread_instructions) = 0;
  // Takes output of the kernel; text of one printf call.
  virtual void Print(std::string_view text) = 0;
  // %globaltimer, and %clock at 1 GHz.
  virtual Nanos GlobalTimer() { return MonotonicNow(); }
};

inline constexpr std::uint64_t kProgressInterval = 10'000;

struct Dim3 {
  std::uint32_t x = 1, y = 1, z = 1;
  std::uint64_t Count() const { return std::uint64_t{x} * y * z; }
};

struct Launch {
  Dim3 grid;
  Dim3 block;
  std::uint32_t dynamic_shared_bytes = 0;
  std::span<const std::byte> parameters;  // at least Kernel::parameter_bytes, laid out by Parameter::offset
  bool cooperative = false;               // all blocks are resident at once, grid barriers work
  std::uint32_t sm_count = 1;             // %nsmid
  std::uint64_t grid_id = 0;              // %gridid
};

// Why a kernel did not finish.
struct Fault {
  enum Kind {
    kInvalidLaunch,        // the launch does not fit the kernel: nothing ran
    kIllegalAddress,       // CUDA_ERROR_ILLEGAL_ADDRESS
    kMisalignedAddress,    // CUDA_ERROR_MISALIGNED_ADDRESS
    kInvalidAddressSpace,  // CUDA_ERROR_INVALID_ADDRESS_SPACE
    kInvalidPc,            // CUDA_ERROR_INVALID_PC: a call through a bad pointer
    kStackOverflow,        // CUDA_ERROR_LAUNCH_FAILED: calls too deep
    kAssert,               // CUDA_ERROR_ASSERT
    kTrap,                 // CUDA_ERROR_LAUNCH_FAILED: trap
    kDeadlock,             // CUDA_ERROR_LAUNCH_TIMEOUT: all threads of a block wait at barriers that nobody will reach
    kAborted,              // Progress said so
  };
  Kind kind;
  std::string message;  // with kernel, line of the PTX, block and thread
};

// Runs one grid to its end on the calling thread. Memory written before a fault stays written.
std::expected<void, Fault> Run(const Module& module, const Kernel& kernel, const Launch& launch, AddressSpace& memory,
                               Hooks& hooks);

}  // namespace tessera::soft::ptx
