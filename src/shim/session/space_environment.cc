#include "shim/session/space_environment.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

namespace tessera::shim {
namespace {

constexpr double kAllSms = 100;

constexpr double kNone = -1;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// The percentage in the environment; without one, all SMs. Not by strtod, which follows the program's locale; and
// std::from_chars of a double would bring the unwinder along (process/runtime.cc).
double Percentage() {
  const char* at = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
  if (!at || !*at) return kAllSms;
  if (!IsDigit(*at)) return kNone;
  double percentage = 0;
  for (; IsDigit(*at); ++at) percentage = 10 * percentage + (*at - '0');
  if (*at == '.') {
    double place = 1;
    for (++at; IsDigit(*at); ++at) percentage += (*at - '0') * (place /= 10);
  }
  return *at ? kNone : percentage;
}

}  // namespace

std::string WhyNotInSpace(const wire::Welcome& terms) {
  if (terms.space[0] == 0) return {};
  const std::string how = "; start the program with 'tessera run --vgpu', or set it";
  const std::string pipes(wire::TextOf(terms.mps_pipes));
  const char* given = getenv("CUDA_MPS_PIPE_DIRECTORY");
  if (!given || pipes != given)
    return "the vGPU is in space " + std::string(wire::TextOf(terms.space)) + ", and CUDA_MPS_PIPE_DIRECTORY is not " +
           pipes + how;
  const double limit = terms.sm_reserved ? kAllSms : terms.sm_limit / 100.0;
  if (fabs(Percentage() - limit) < 0.01) return {};
  char percent[32];
  snprintf(percent, sizeof percent, "%g", limit);
  return "the vGPU has " + std::string(percent) + " % of the SMs, and CUDA_MPS_ACTIVE_THREAD_PERCENTAGE is not that" +
         how;
}

}  // namespace tessera::shim
