#include "plan/input/trace_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "base/text/utf8.h"
#include "plan/input/trace_use.h"

namespace tessera::plan {
namespace {

using nlohmann::json;

constexpr std::int64_t kFirstProcessTrack = 1ll << 32;  // as src/face/text/trace_json.cc has them
constexpr double kLongest = 366.0 * 24 * 3600 * 1e6;    // microseconds
constexpr std::string_view kMemoryOf = "memory of ", kCreated = "vgpu.created ", kRemoved = "vgpu.removed ";

// The fields of an event that say what a vGPU used.
struct TraceEvent {
  std::string phase, name, named;
  double gpu = -1, track = -1, at = -1, length = 0, resident = 0, swapped = 0;
};

bool IsName(const std::string& name) { return !name.empty() && name.size() <= 253 && IsPrintableUtf8(name); }

// Hears the parser. Where it is in the document is known by the keys that lead there.
class TraceListener : public nlohmann::json_sax<json> {
 public:
  TraceListener(std::string source, Nanos interval) : source_(std::move(source)), interval_(interval) {}

  Result<Workload> Take() {
    if (error_) return std::unexpected(*error_);
    if (!use_) return NotATrace();
    auto workload = use_->Take();
    if (!workload) return Fail(workload.error().code, source_ + ": " + workload.error().message, workload.error().hint);
    if (workload->tenants.empty()) return Fail(EINVAL, source_ + ": there is no vGPU in this trace");
    if (!whole_) workload->notes.push_back("the daemon did not keep the begin of the time that was asked for");
    return workload;
  }

  bool null() override { return true; }
  bool boolean(bool value) override {
    if (Is("otherData", "whole")) whole_ = value;
    return true;
  }
  bool number_integer(std::int64_t value) override { return Number(static_cast<double>(value)); }
  bool number_unsigned(std::uint64_t value) override { return Number(static_cast<double>(value)); }
  bool number_float(double value, const std::string&) override { return Number(value); }
  bool string(std::string& value) override {
    if (!InEvent()) return true;
    if (path_.size() == 3) {
      if (path_[2] == "ph") event_.phase = value;
      if (path_[2] == "name") event_.name = value;
    } else if (path_.size() == 4 && path_[2] == "args" && path_[3] == "name") {
      event_.named = value;
    }
    return true;
  }
  bool binary(json::binary_t&) override { return true; }

  bool start_object(std::size_t) override {
    path_.emplace_back();
    if (path_.size() == 3 && path_[0] == "traceEvents") event_ = {};
    return path_.size() < kDeepest || Refuse(NotATrace());
  }
  bool key(std::string& name) override {
    path_.back() = name;
    return true;
  }
  bool end_object() override {
    path_.pop_back();
    if (path_.size() != 2 || path_[0] != "traceEvents") return true;
    ++events_;
    if (!use_ && !Begin()) return false;
    return use_ && Use(*use_);
  }
  bool start_array(std::size_t) override {
    path_.emplace_back();
    return path_.size() < kDeepest || Refuse(NotATrace());
  }
  bool end_array() override {
    path_.pop_back();
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return Refuse(Fail(EINVAL, fmt::format("{}: no JSON, or cut off, at byte {}", source_, position),
                       "use a file of tessera trace"));
  }

 private:
  static constexpr std::size_t kDeepest = 64;

  // path_ has a part for each object and array that is open: its key, or nothing for an array's.
  bool Is(std::string_view outer, std::string_view inner) const {
    return path_.size() == 2 && path_[0] == outer && path_[1] == inner;
  }
  bool InEvent() const { return path_.size() >= 3 && path_[0] == "traceEvents" && path_[1].empty(); }

  bool Refuse(std::unexpected<Error> error) {
    if (!error_) error_ = std::move(error).error();
    return false;
  }
  std::unexpected<Error> NotATrace() const {
    return Fail(EINVAL, source_ + " is no trace of vGPUs", "use a file of tessera trace, as it was written");
  }
  bool WrongEvent(int code, const std::string& message, const std::string& hint = {}) {
    return Refuse(Fail(code, fmt::format("{}: event {}: {}", source_, events_, message), hint));
  }

  bool Number(double value) {
    if (Is("otherData", "begin_us")) begin_ = value;
    if (Is("otherData", "end_us")) end_ = value;
    if (!InEvent()) return true;
    if (path_.size() == 3) {
      const std::string& key = path_[2];
      if (key == "pid") event_.gpu = value;
      if (key == "tid") event_.track = value;
      if (key == "ts") event_.at = value;
      if (key == "dur") event_.length = value;
    } else if (path_.size() == 4 && path_[2] == "args") {
      if (path_[3] == "resident") event_.resident = value;
      if (path_[3] == "swapped") event_.swapped = value;
    }
    return true;
  }

  // The trace's begin and end stand before its events.
  bool Begin() {
    if (begin_ < 0 || end_ < begin_) return Refuse(NotATrace());
    if (end_ - begin_ > kLongest) return Refuse(Fail(ERANGE, source_ + ": the trace is longer than a year"));
    use_.emplace(std::max<Nanos>(Since(end_), 1), interval_);
    return true;
  }

  Nanos Since(double microseconds) const {
    return static_cast<Nanos>(std::clamp(microseconds - begin_, -kLongest, kLongest) * kMicrosecond);
  }

  bool Use(TraceUse& use) {
    const bool is_work = event_.phase == "X" && (event_.name == "runs" || event_.name.starts_with("waits: "));
    const bool is_memory = event_.phase == "C" && event_.name.starts_with(kMemoryOf);
    const bool is_name = event_.phase == "M" && (event_.name == "thread_name" || event_.name == "process_name");
    const bool is_life =
        event_.phase == "i" && (event_.name.starts_with(kCreated) || event_.name.starts_with(kRemoved));
    if (!is_work && !is_memory && !is_name && !is_life) return true;
    if (!(event_.gpu >= 0 && event_.gpu < 1e6)) return WrongEvent(EINVAL, "its pid is no GPU");
    const auto gpu = static_cast<std::int64_t>(event_.gpu);
    const auto track = static_cast<std::int64_t>(std::clamp(event_.track, -1.0, 1e15));
    if (is_name) return UseName(use, gpu, track);
    if (!(event_.at >= 0)) return WrongEvent(EINVAL, "its ts is no time");
    const Nanos at = Since(event_.at);
    if (is_life) return UseLife(use, gpu, at);
    if (is_memory) {
      if (event_.resident < 0 || event_.swapped < 0 || event_.resident + event_.swapped > 1e15)
        return WrongEvent(ERANGE, "its memory is below 0 or beyond 1 PB");
      const std::string name = event_.name.substr(kMemoryOf.size());
      if (!IsName(name)) return WrongEvent(EINVAL, "it names no vGPU");
      use.AddMemory(gpu, name, at, static_cast<std::uint64_t>(event_.resident + event_.swapped));
      return true;
    }
    if (event_.length < 0) return WrongEvent(ERANGE, "its dur is below 0: the clock goes back");
    if (track < 0 || track >= kFirstProcessTrack) return true;
    auto added = use.AddWork(gpu, track, at, at + static_cast<Nanos>(std::min(event_.length, kLongest) * 1e3));
    return added || WrongEvent(added.error().code, added.error().message, added.error().hint);
  }

  // "vgpu.created NAME", which a process's number may follow.
  bool UseLife(TraceUse& use, std::int64_t gpu, Nanos at) {
    const bool begins = event_.name.starts_with(kCreated);
    const std::string rest = event_.name.substr((begins ? kCreated : kRemoved).size());
    const std::string name = rest.substr(0, rest.find(' '));
    if (!IsName(name)) return WrongEvent(EINVAL, "it names no vGPU");
    begins ? use.AddBegin(gpu, name, at) : use.AddEnd(gpu, name, at);
    return true;
  }

  bool UseName(TraceUse& use, std::int64_t gpu, std::int64_t track) {
    if (!IsName(event_.named)) return WrongEvent(EINVAL, "its args.name is no name");
    if (event_.name == "process_name")
      use.NameGpu(gpu, event_.named);
    else if (track >= 0 && track < kFirstProcessTrack)
      use.NameTrack(gpu, track, event_.named);
    return true;
  }

  const std::string source_;
  const Nanos interval_;
  std::optional<Error> error_;
  std::vector<std::string> path_;
  TraceEvent event_;
  std::uint64_t events_ = 0;
  double begin_ = -1, end_ = -1;  // microseconds of the wall clock
  bool whole_ = true;
  std::optional<TraceUse> use_;
};

}  // namespace

Result<Workload> ReadTraceJson(std::istream& text, const std::string& source, Nanos interval) {
  TraceListener listener(source, interval);
  (void)json::sax_parse(text, &listener);
  if (text.bad()) return Fail(EIO, "cannot read " + source);
  return listener.Take();
}

}  // namespace tessera::plan
