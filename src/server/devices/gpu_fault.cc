#include "server/devices/gpu_fault.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace tessera::server {
namespace {

struct XidMeaning {
  std::uint64_t number;
  const char* meaning;
};

// NVIDIA's "XID Errors", release 580: those that monitoring tools name.
constexpr std::array kXidMeanings = std::to_array<XidMeaning>({
    {13, "graphics engine exception: mostly a program's own fault"},
    {31, "GPU memory page fault: mostly a program's own fault"},
    {32, "invalid or corrupted push buffer stream"},
    {38, "driver firmware error"},
    {43, "GPU stopped processing: a program's own fault"},
    {45, "work removed after an earlier error, or because its program ended"},
    {48, "double-bit ECC error"},
    {61, "internal micro-controller breakpoint"},
    {62, "internal micro-controller halt"},
    {63, "memory row remapped, or page retired"},
    {64, "memory row could not be remapped, or page not retired"},
    {68, "video decoder exception"},
    {69, "graphics engine class error"},
    {74, "NVLink error"},
    {79, "GPU has fallen off the bus"},
    {92, "high rate of single-bit ECC errors"},
    {94, "contained memory error"},
    {95, "uncontained memory error"},
    {109, "context switch timeout"},
    {119, "no answer from the GPU's firmware (GSP)"},
    {120, "error of the GPU's firmware (GSP)"},
    {140, "unrecovered ECC error"},
    {143, "GPU initialization failed"},
});

constexpr std::uint64_t kOffTheBus = 79;

// Xids that a program's own faults cause, or may (the same document).
constexpr std::array<std::uint64_t, 7> kOfPrograms = {13, 31, 32, 43, 45, 68, 69};

}  // namespace

std::string GpuFault::Text() const {
  if (kind == Kind::kLost) return "the GPU is lost: it does not answer";
  if (kind == Kind::kEcc) return "double-bit ECC error";
  const auto known = std::ranges::find(kXidMeanings, xid, &XidMeaning::number);
  return known == kXidMeanings.end() ? fmt::format("Xid {}", xid) : fmt::format("Xid {} ({})", xid, known->meaning);
}

bool GpuFault::Fatal() const { return kind == Kind::kLost || (kind == Kind::kXid && xid == kOffTheBus); }

bool GpuFault::ByProgram() const {
  return kind == Kind::kXid && std::ranges::find(kOfPrograms, xid) != kOfPrograms.end();
}

}  // namespace tessera::server
