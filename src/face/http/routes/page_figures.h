#pragma once

#include <atomic>

#include "base/clock.h"
#include "base/result.h"
#include "face/http/shared_answers.h"
#include "server/daemon/control.h"

namespace tessera::face {

// What the live page asks for every second. All pages of operators share an answer, so that the loop has the work of
// one, however many are open; so do those of a user. Any thread.
class PageFigures {
 public:
  // JSON for who `control` is for. Errors are those of the daemon.
  Result<SharedAnswers::Text> Overview(server::Control& control);
  Result<SharedAnswers::Text> Timeline(server::Control& control);

  // Something changed: who asks for the overview after this sees it.
  void Forget() { overviews_.Forget(); }

 private:
  Result<std::string> MakeOverview(const server::Control& control);

  static constexpr Nanos kOverviewLasts = 900 * kMillisecond, kTimelineLasts = 10 * kSecond;
  static constexpr Nanos kMeasureAfter = 5 * kSecond;  // overviews ask the devices so often
  static constexpr Nanos kTimeline = 300 * kSecond;    // the time of which it tells

  SharedAnswers overviews_{kOverviewLasts}, timelines_{kTimelineLasts};
  std::atomic<Nanos> measured_{0};  // when an overview asked the devices last
};

}  // namespace tessera::face
