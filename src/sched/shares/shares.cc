#include "sched/shares/shares.h"

#include <cstdio>
#include <string>

namespace tessera::sched {
namespace {

Result<void> CheckRange(const char* field, double value, bool in_range, const char* range) {
  if (in_range) return {};
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return Fail(ERANGE, std::string(field) + " " + text + " is out of range", std::string("give ") + range);
}

}  // namespace

Result<void> Validate(const Shares& shares) {
  const double request = shares.request_pct;
  const double limit = shares.limit_pct;
  // Written so that NaN is out of range.
  if (auto ok = CheckRange("compute.limit", limit, limit > 0 && limit <= 100, "more than 0 and at most 100"); !ok)
    return ok;
  if (auto ok = CheckRange("compute.request", request, request >= 0 && request <= 100, "0 to 100"); !ok) return ok;
  if (auto ok = CheckRange("compute.weight", shares.weight, shares.weight >= 1 && shares.weight <= 10000, "1 to 10000");
      !ok)
    return ok;
  if (auto ok = CheckRange("compute.priority", shares.priority, shares.priority <= 15, "0 (first) to 15"); !ok)
    return ok;
  if (auto ok = CheckRange("compute.patience", static_cast<double>(shares.patience) / kMicrosecond,
                           shares.patience >= 0 && shares.patience <= kSecond, "0 to 1000000 microseconds");
      !ok)
    return ok;
  if (auto ok = CheckRange("sm.limit", shares.space.sm_pct, shares.space.sm_pct > 0 && shares.space.sm_pct <= 100,
                           "more than 0 and at most 100");
      !ok)
    return ok;
  if (shares.space.number == 0 && shares.space.sm_pct < 100)
    return Fail(EINVAL, "sm.limit needs a space: SMs are divided only among the programs of a space", "name a space");
  if (shares.space.number == 0 && shares.space.reserved)
    return Fail(EINVAL, "sm.reserved needs a space: SMs are divided only among the programs of a space",
                "name a space");
  if (shares.space.burst && !shares.space.reserved)
    return Fail(EINVAL, "sm.burst needs sm.reserved: a limit of SMs is set when a program starts, and stays",
                "reserve the SMs, or leave the burst out");
  if (request > limit)
    return Fail(EINVAL, "compute.request is above compute.limit", "lower the request or raise the limit");
  return {};
}

}  // namespace tessera::sched
