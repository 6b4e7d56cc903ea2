#include "face/http/routes/page_figures.h"

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>

#include "face/text/overview_json.h"
#include "face/text/timeline_json.h"
#include "server/daemon/overview.h"

namespace tessera::face {
namespace {

// None: all operators.
std::optional<uid_t> UserOf(const server::Control& control) {
  return control.Who().IsOperator() ? std::nullopt : std::optional(control.Who().uid);
}

}  // namespace

Result<SharedAnswers::Text> PageFigures::Overview(server::Control& control) {
  return overviews_.Get(UserOf(control), [&] { return MakeOverview(control); });
}

Result<SharedAnswers::Text> PageFigures::Timeline(server::Control& control) {
  return timelines_.Get(UserOf(control), [&]() -> Result<std::string> {
    const auto trace = control.Trace(kTimeline);
    if (!trace) return std::unexpected(trace.error());
    return WriteTimeline(*trace, kTimeline);
  });
}

Result<std::string> PageFigures::MakeOverview(const server::Control& control) {
  const Nanos now = MonotonicNow();
  // For operators alone, as asking the devices is.
  const bool measure = control.Who().IsOperator() && now - measured_.load() >= kMeasureAfter;
  if (measure) measured_ = now;
  const auto overview = server::OverviewControl(control).Look(measure);
  if (!overview) return std::unexpected(overview.error());
  using namespace std::chrono;
  const auto wall = duration_cast<microseconds>(system_clock::now().time_since_epoch());
  return WriteOverview(*overview, control.Who(), control.Traits(), wall.count());
}

}  // namespace tessera::face
