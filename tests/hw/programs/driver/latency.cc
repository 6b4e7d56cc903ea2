// How long a short kernel takes from its launch to its end, now and then (runs.h). Each is waited for, and PERIOD_US,
// give or take a quarter, lies between the end of one and the launch of the next.
#include "runs.h"

namespace {

std::vector<double> Launches(Stepper& stepper, int count, unsigned gap_us, unsigned seed) {
  std::vector<double> us;
  unsigned random = seed;
  for (int i = 0; i < count; ++i) {
    usleep(static_cast<useconds_t>(gap_us * (0.75 + 0.5 * Uniform(random))));
    const double begin = NowUs();
    stepper.Launch();
    stepper.Wait();
    us.push_back(NowUs() - begin);
  }
  return us;
}

}  // namespace

int main(int argc, char** argv) { return AnswerRuns(argc, argv, Launches); }
