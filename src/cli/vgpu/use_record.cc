#include "cli/vgpu/use_record.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/size.h"
#include "client/json_fields.h"

namespace tessera::cli {
using client::Field;
using client::IntegerField;
using client::Json;
using client::TextField;

std::string UseRecord::Rows(const Json& vgpus, Nanos now) {
  std::string rows;
  std::map<std::string, std::uint64_t> worked;
  if (!vgpus.is_array()) return rows;
  for (const Json& vgpu : vgpus) {
    const std::string name = TextField(vgpu, "name");
    if (name.empty()) continue;
    const std::uint64_t us = IntegerField(vgpu, "compute_busy_us") + IntegerField(vgpu, "compute_waited_us");
    worked[name] = us;
    if (last_ == 0 || now <= last_) continue;
    const auto before = worked_us_.find(name);
    // Less than before: it was made anew.
    const std::uint64_t since = before == worked_us_.end() || us < before->second ? us : us - before->second;
    const double part = static_cast<double>(since) * kMicrosecond / static_cast<double>(now - last_);
    char row[128];
    std::snprintf(row, sizeof row, ",%llu,%.2f,%llu\n", static_cast<unsigned long long>(IntegerField(vgpu, "gpu")),
                  std::min(part, 1.0) * 100,
                  static_cast<unsigned long long>(IntegerField(vgpu, "memory_current_bytes") / kMiB));
    char second[32];
    std::snprintf(second, sizeof second, "%.3f,", static_cast<double>(last_) / kSecond);
    rows += second + name + row;
  }
  worked_us_ = std::move(worked);
  last_ = now;
  return rows;
}

}  // namespace tessera::cli
