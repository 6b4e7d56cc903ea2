#include "soft/ptx/run/built_in.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>

#include "soft/ptx/run/lanes.h"
#include "soft/ptx/run/memory.h"

namespace tessera::soft::ptx {
namespace {

constexpr std::size_t kMaxText = 64 << 10;  // of one printf
constexpr int kMaxWidth = 4096;

// One thread that calls a built-in.
struct Caller {
  Warp& warp;
  const Instruction& in;
  const CallSite& site;
  unsigned lane;

  std::byte* Frame(const FrameSlot& slot) const {
    return warp.local.get() + std::size_t{lane} * warp.local_bytes + warp.local_base + slot.offset;
  }
  std::uint64_t Argument(std::size_t index) const {
    std::uint64_t value = 0;
    if (index >= site.arguments.size()) return value;
    std::memcpy(&value, Frame(site.arguments[index]), std::min<std::size_t>(site.arguments[index].bytes, sizeof value));
    return value;
  }
  void Answer(std::uint32_t value) const {
    if (site.results.empty()) return;
    std::memcpy(Frame(site.results[0]), &value, std::min<std::size_t>(site.results[0].bytes, sizeof value));
  }
  bool String(std::uint64_t address, std::string& text) const {
    return ReadString(warp, in, lane, address, kMaxText, text);
  }
};

// The arguments of a printf as the compiler lays them out: each aligned to its own size.
class Arguments {
 public:
  Arguments(const Caller& caller, std::uint64_t address) : caller_(caller), address_(address) {}

  template <typename T>
  std::optional<T> Next() {
    address_ = (address_ + sizeof(T) - 1) / sizeof(T) * sizeof(T);
    const std::byte* place =
        At<Space::kGeneric>(caller_.warp, caller_.in, caller_.lane, address_, sizeof(T), Access::kRead);
    if (place == nullptr) return std::nullopt;
    address_ += sizeof(T);
    ++count_;
    T value;
    std::memcpy(static_cast<void*>(&value), place, sizeof(T));
    return value;
  }
  std::uint32_t count() const { return count_; }

 private:
  const Caller& caller_;
  std::uint64_t address_;
  std::uint32_t count_ = 0;
};

template <typename T>
bool Append(std::string& text, const std::string& format, std::optional<T> value) {
  if (!value) return false;
  const int length = std::snprintf(nullptr, 0, format.c_str(), *value);
  if (length <= 0) return true;
  std::string piece(static_cast<std::size_t>(length) + 1, '\0');
  std::snprintf(piece.data(), piece.size(), format.c_str(), *value);
  text.append(piece, 0, static_cast<std::size_t>(length));
  return true;
}

// A number of a conversion's width or precision, with * read from the arguments.
bool TakeNumber(const std::string& format, std::size_t& at, Arguments& arguments, std::string& out) {
  int number = 0;
  if (format[at] == '*') {
    ++at;
    const auto given = arguments.Next<std::int32_t>();
    if (!given) return false;
    number = *given;
  } else if (format[at] < '0' || format[at] > '9') {
    return true;
  }
  for (; format[at] >= '0' && format[at] <= '9'; ++at) number = std::min(number * 10 + (format[at] - '0'), kMaxWidth);
  out += std::to_string(std::clamp(number, -kMaxWidth, kMaxWidth));
  return true;
}

// The conversion behind the % at `at`, which is moved past it. False after a fault.
bool Convert(const Caller& caller, const std::string& format, std::size_t& at, Arguments& arguments,
             std::string& text) {
  std::string spec = "%";
  while (std::strchr("-+ #0", format[at]) != nullptr && format[at] != '\0') spec += format[at++];
  if (!TakeNumber(format, at, arguments, spec)) return false;
  if (format[at] == '.') {
    spec += format[at++];
    if (!TakeNumber(format, at, arguments, spec)) return false;
  }
  bool wide = false;
  for (; format[at] != '\0' && std::strchr("hlLjzt", format[at]) != nullptr; ++at) wide |= format[at] != 'h';
  const char kind = format[at] == '\0' ? '\0' : format[at++];
  switch (kind) {
    case 'd':
    case 'i':
      return wide ? Append(text, spec + "ll" + kind, arguments.Next<long long>())
                  : Append(text, spec + kind, arguments.Next<int>());
    case 'u':
    case 'x':
    case 'X':
    case 'o':
      return wide ? Append(text, spec + "ll" + kind, arguments.Next<unsigned long long>())
                  : Append(text, spec + kind, arguments.Next<unsigned>());
    case 'c':
      return Append(text, spec + kind, arguments.Next<int>());
    case 'p':
      return Append(text, spec + kind, arguments.Next<void*>());
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
    case 'a':
    case 'A':
      return Append(text, spec + kind, arguments.Next<double>());
    case 's': {
      const auto address = arguments.Next<std::uint64_t>();
      std::string value;
      if (!address || !caller.String(*address, value)) return false;
      return Append(text, spec + kind, std::optional(value.c_str()));
    }
    case '%':
      text += '%';
      return true;
    default:
      text += spec;
      return true;
  }
}

bool Print(const Caller& caller) {
  std::string format, text;
  if (!caller.String(caller.Argument(0), format)) return false;
  Arguments arguments(caller, caller.Argument(1));
  for (std::size_t at = 0; at < format.size() && text.size() < kMaxText;) {
    if (format[at] != '%') {
      text += format[at++];
    } else if (!Convert(caller, format, ++at, arguments, text)) {
      return false;
    }
  }
  caller.warp.block->grid->hooks.Print(text);
  caller.Answer(arguments.count());
  return true;
}

void Vprintf(Warp& warp, const Instruction& in, const CallSite& site, LaneMask lanes) {
  for (; lanes != 0; lanes &= lanes - 1) {
    if (!Print({warp, in, site, static_cast<unsigned>(std::countr_zero(lanes))})) return;
  }
}

// __assertfail(message, file, line, function, size of a character)
void AssertFail(Warp& warp, const Instruction& in, const CallSite& site, LaneMask lanes) {
  const Caller caller = {warp, in, site, static_cast<unsigned>(std::countr_zero(lanes))};
  std::string message, file, function;
  if (!caller.String(caller.Argument(0), message) || !caller.String(caller.Argument(1), file) ||
      !caller.String(caller.Argument(3), function)) {
    return;
  }
  warp.Raise(
      in, caller.lane, Fault::kAssert,
      file + ":" + std::to_string(caller.Argument(2)) + ": " + function + ": Assertion `" + message + "` failed");
}

}  // namespace

Function::BuiltIn FindBuiltIn(std::string_view name) {
  if (name == "vprintf") return &Vprintf;
  if (name == "__assertfail") return &AssertFail;
  return nullptr;
}

}  // namespace tessera::soft::ptx
