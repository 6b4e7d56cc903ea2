#include "server/channels/steering_check.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "base/clock.h"
#include "server/record/log.h"

namespace tessera::server {

void SteeringCheck::Start(const std::vector<std::string>& gpus, bool soft, std::function<void()> done) {
  if (!availability_.WhyNone().empty() || soft) {
    End(soft);
    return done();
  }
  availability_.BeginTest();
  testing_.Start(
      [this, gpus] {
        tests_.clear();
        for (const std::string& uuid : gpus) tests_.push_back(channel::RunSelfTest(uuid));
      },
      [this, done = std::move(done)] {
        End(/*soft=*/false);
        done();
      });
}

void SteeringCheck::End(bool soft) {
  std::map<std::uint32_t, std::string> failed;
  std::string said = soft ? "the soft GPU needs no test" : "";
  for (std::uint32_t gpu = 0; gpu < tests_.size(); ++gpu) {
    const auto& test = tests_[gpu];
    if (test) {
      said = fmt::format("works with driver {}: freeze {} us, thaw {} us", test->driver, test->freeze / kMicrosecond,
                         test->thaw / kMicrosecond);
      continue;
    }
    log::Warn("GPU {}: channels are not steered: {}; time is shared by gates", gpu, test.error().Text());
    failed[gpu] = test.error().Text();
  }
  availability_.EndTest(std::move(failed), std::move(said));
}

}  // namespace tessera::server
