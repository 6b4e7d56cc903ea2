// The keys of a GPU model's file: one table, by which it is read and written.
#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <set>
#include <sstream>

#include "base/edit_distance.h"
#include "base/size.h"
#include "plan/gpus/gpu_model.h"

namespace tessera::plan {
namespace {

constexpr double kGigabyte = 1e9;
constexpr double kMostMicroseconds = 10e6;
constexpr double kMostBandwidth = 1e6;  // GB/s

struct Key {
  std::string name;  // with its section
  const char* meaning;
  bool required;
  // Null: done; else what the value must be.
  std::function<const char*(const toml::node&, GpuModel&)> set;
  std::function<std::string(const GpuModel&)> text;  // of the value, as TOML
};

// Functions that give a field of a model.
template <typename T>
using Field = T& (*)(GpuModel&);

template <typename T>
T ValueOf(Field<T> field, GpuModel model) {
  return field(model);
}

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

std::string Quoted(const std::string& value) {
  std::ostringstream text;
  text << toml::toml_formatter(toml::value<std::string>(value),
                               toml::toml_formatter::default_flags & ~toml::format_flags::allow_literal_strings);
  return text.str();
}

Key Text(const char* name, const char* meaning, Field<std::string> field) {
  return {name, meaning, true,
          [=](const toml::node& node, GpuModel& model) -> const char* {
            const auto text = node.value_exact<std::string>();
            if (!text || text->empty()) return "a text";
            field(model) = *text;
            return nullptr;
          },
          [=](const GpuModel& model) { return Quoted(ValueOf(field, model)); }};
}

Key Size(const char* name, const char* meaning, bool required, bool may_be_none, Field<std::uint64_t> field) {
  return {name, meaning, required,
          [=](const toml::node& node, GpuModel& model) -> const char* {
            const auto text = node.value_exact<std::string>();
            const auto size = text ? ParseSize(*text) : Result<std::uint64_t>(0);
            if (!text || !size || (*size == 0 && !may_be_none))
              return may_be_none ? "a size, such as \"512M\"" : "a size above 0, such as \"80G\"";
            field(model) = *size;
            return nullptr;
          },
          [=](const GpuModel& model) {
            const std::uint64_t bytes = ValueOf(field, model);
            if (bytes % kMiB != 0) return "\"" + std::to_string(bytes) + "\"";
            return bytes % kGiB == 0 && bytes > 0 ? "\"" + std::to_string(bytes / kGiB) + "G\""
                                                  : "\"" + std::to_string(bytes / kMiB) + "M\"";
          }};
}

// A number in [least, most]; the field is `scale` times that.
Key Double(const char* name, const char* meaning, bool required, double scale, double least, double most,
           const char* expected, Field<double> field) {
  return {name, meaning, required,
          [=](const toml::node& node, GpuModel& model) -> const char* {
            const auto value = node.is_number() ? node.value<double>() : std::nullopt;
            if (!value || !std::isfinite(*value) || *value < least || *value > most) return expected;
            field(model) = *value * scale;
            return nullptr;
          },
          [=](const GpuModel& model) { return Number(ValueOf(field, model) / scale); }};
}

Key Microseconds(const char* name, const char* meaning, Field<Nanos> field) {
  return {name, meaning, false,
          [=](const toml::node& node, GpuModel& model) -> const char* {
            const auto value = node.is_number() ? node.value<double>() : std::nullopt;
            if (!value || !std::isfinite(*value) || *value < 0 || *value > kMostMicroseconds)
              return "a number of microseconds from 0 to 10000000";
            field(model) = static_cast<Nanos>(*value * kMicrosecond);
            return nullptr;
          },
          [=](const GpuModel& model) { return Number(static_cast<double>(ValueOf(field, model)) / kMicrosecond); }};
}

Key Flag(const char* name, const char* meaning, Field<bool> field) {
  return {name, meaning, false,
          [=](const toml::node& node, GpuModel& model) -> const char* {
            const auto value = node.value_exact<bool>();
            if (!value) return "true or false";
            field(model) = *value;
            return nullptr;
          },
          [=](const GpuModel& model) { return ValueOf(field, model) ? "true" : "false"; }};
}

Key Count(const char* name, const char* meaning, Field<std::uint32_t> field) {
  return {name, meaning, true,
          [=](const toml::node& node, GpuModel& model) -> const char* {
            const auto value = node.value_exact<std::int64_t>();
            if (!value || *value < 1 || *value > 100000) return "a whole number from 1 to 100000";
            field(model) = static_cast<std::uint32_t>(*value);
            return nullptr;
          },
          [=](const GpuModel& model) { return std::to_string(ValueOf(field, model)); }};
}

constexpr const char* kBandwidth = "a number of GB/s above 0";

// In the order of the file.
const std::vector<Key>& Keys() {
  using Model = GpuModel;
  static const std::vector<Key> kKeys = {
      Text("name", "as --gpu has it", [](Model& m) -> auto& { return m.name; }),
      Text("title", "for people", [](Model& m) -> auto& { return m.title; }),
      Text("source", "where these figures come from", [](Model& m) -> auto& { return m.source; }),
      Size("memory", "that vGPUs can have, their contexts included", true, false,
           [](Model& m) -> auto& { return m.memory; }),
      Count("sms", "multiprocessors", [](Model& m) -> auto& { return m.sms; }),
      Double("bandwidth_gb_s", "of its memory", true, kGigabyte, 1e-3, kMostBandwidth, kBandwidth,
             [](Model& m) -> auto& { return m.bandwidth; }),
      Double("speed", "of kernels, against an H200's", false, 1, 1e-3, 1000, "a number from 0.001 to 1000",
             [](Model& m) -> auto& { return m.speed; }),
      Double("space_speed", "of each program beside others in a space, against alone on as many SMs", false, 1, 0.5, 1,
             "a number from 0.5 to 1", [](Model& m) -> auto& { return m.space_speed; }),
      Microseconds("steering.switch_us", "between two vGPUs; no work runs then",
                   [](Model& m) -> auto& { return m.steering.switch_cost; }),
      Flag("steering.switch_in_slice", "a switch takes its time off the slice that follows it",
           [](Model& m) -> auto& { return m.steering.switch_in_slice; }),
      Microseconds("steering.freeze_us", "to take a vGPU off the GPU",
                   [](Model& m) -> auto& { return m.steering.freeze; }),
      Microseconds("steering.thaw_us", "to put it back", [](Model& m) -> auto& { return m.steering.thaw; }),
      Microseconds("steering.set_slice_us", "to set a slice", [](Model& m) -> auto& { return m.steering.set_slice; }),
      Microseconds("steering.message_us", "from a program to the daemon, at most",
                   [](Model& m) -> auto& { return m.steering.message; }),
      Microseconds("steering.lateness_us", "of the daemon's timer, at most",
                   [](Model& m) -> auto& { return m.steering.lateness; }),
      Microseconds("tokens.hand_over_us", "from a grant to the first work, if another vGPU ran last",
                   [](Model& m) -> auto& { return m.tokens.hand_over; }),
      Microseconds("tokens.idle_grace_us", "without work for so long, a program says that it is idle",
                   [](Model& m) -> auto& { return m.tokens.idle_grace; }),
      Microseconds("tokens.lateness_us", "of the daemon's timer, at most",
                   [](Model& m) -> auto& { return m.tokens.lateness; }),
      Double("moves.out_gb_s", "memory to the host", false, kGigabyte, 1e-3, kMostBandwidth, kBandwidth,
             [](Model& m) -> auto& { return m.moves.out_bytes_per_second; }),
      Double("moves.in_gb_s", "and back", false, kGigabyte, 1e-3, kMostBandwidth, kBandwidth,
             [](Model& m) -> auto& { return m.moves.in_bytes_per_second; }),
      Size("moves.batch", "moved without a break", false, false, [](Model& m) -> auto& { return m.moves.batch; }),
      Size("moves.chunk", "memory is moved in whole chunks", false, false,
           [](Model& m) -> auto& { return m.moves.chunk; }),
      Size("moves.host_memory", "that may hold what is moved out", false, true,
           [](Model& m) -> auto& { return m.moves.host_memory; }),
      Size("moves.context", "that each program needs before it allocates, and that is not moved", false, true,
           [](Model& m) -> auto& { return m.moves.context; }),
  };
  return kKeys;
}

std::string SectionOf(const std::string& name) {
  const std::size_t dot = name.find('.');
  return dot == name.npos ? "" : name.substr(0, dot);
}

std::string Place(const std::string& source, unsigned line) { return source + ":" + std::to_string(line) + ": "; }

std::unexpected<Error> UnknownKey(const std::string& place, const std::string& name) {
  const auto distance = [&](const Key& each) { return EditDistance(name, each.name); };
  return Fail(EINVAL, place + "unknown key " + name,
              "did you mean " + std::ranges::min_element(Keys(), {}, distance)->name + "?");
}

Result<void> Apply(const toml::table& table, const std::string& prefix, const std::string& source, GpuModel& model,
                   std::set<std::string>& given) {
  for (const auto& [part, node] : table) {
    const std::string name = prefix + std::string(part.str());
    const std::string place = Place(source, part.source().begin.line);
    const auto key = std::ranges::find(Keys(), name, &Key::name);
    const bool section = std::ranges::any_of(Keys(), [&](const Key& each) { return SectionOf(each.name) == name; });
    if (key != Keys().end()) {
      if (const char* expected = key->set(node, model)) return Fail(EINVAL, place + name + " must be " + expected);
      given.insert(name);
    } else if (section && node.is_table()) {
      if (auto applied = Apply(*node.as_table(), name + ".", source, model, given); !applied) return applied;
    } else if (section) {
      return Fail(EINVAL, place + name + " must be a section", "write [" + name + "]");
    } else {
      return UnknownKey(place, name);
    }
  }
  return {};
}

}  // namespace

Result<GpuModel> ParseGpuModel(std::string_view text, const std::string& source) {
  GpuModel model;
  std::set<std::string> given;
  try {
    const toml::table table = toml::parse(text, source);
    if (auto applied = Apply(table, "", source, model, given); !applied) return std::unexpected(applied.error());
  } catch (const toml::parse_error& error) {
    return Fail(EINVAL, Place(source, error.source().begin.line) + std::string(error.description()));
  }
  for (const Key& key : Keys()) {
    if (key.required && !given.contains(key.name))
      return Fail(EINVAL, Place(source, 1) + key.name + " is missing", std::string("it is: ") + key.meaning);
  }
  if (model.moves.context >= model.memory)
    return Fail(EINVAL, Place(source, 1) + "moves.context leaves nothing of the memory");
  return model;
}

std::string FormatGpuModel(const GpuModel& model, const std::vector<std::string>& remarks) {
  std::string text;
  for (const std::string& remark : remarks) text += "# " + remark + "\n";
  std::string section;
  for (const Key& key : Keys()) {
    if (SectionOf(key.name) != section) {
      section = SectionOf(key.name);
      text += "\n[" + section + "]\n";
    }
    const std::string name = section.empty() ? key.name : key.name.substr(section.size() + 1);
    std::string line = name + " = " + key.text(model);
    line.resize(std::max<std::size_t>(line.size() + 2, 28), ' ');
    text += line + "# " + key.meaning + "\n";
  }
  return text;
}

}  // namespace tessera::plan
