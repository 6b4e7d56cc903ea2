// How long requests take that come whether or not those before them have ended: "arrivals KERNEL_US [STEPS]". A request
// is a kernel. STEPS other than 0 gives its length instead of KERNEL_US. Says "ready PID STEPS"; then for each line
// "run COUNT PERIOD_US SEED": so many requests, one each PERIOD_US, or at random with that mean if SEED is not 0, and
// one line with the microseconds of each from its arrival to its end. Ends with its input, and says "done N right" if
// the words are.
#include <cmath>

#include "step.h"

namespace {

void SleepUntil(double us) {
  timespec until;
  until.tv_sec = static_cast<time_t>(us / 1e6);
  until.tv_nsec = static_cast<long>((us - static_cast<double>(until.tv_sec) * 1e6) * 1e3);
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
}

// In (0, 1].
double Uniform(unsigned& random) {
  random = random * 1664525u + 1013904223u;
  return ((random >> 8) + 1.0) / (1 << 24);
}

}  // namespace

int main(int argc, char** argv) {
  const double kernel_us = argc > 1 ? std::atof(argv[1]) : 500;
  const unsigned steps = argc > 2 ? static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10)) : 0;
  UseDevice();
  Stepper stepper(1);
  if (steps != 0)
    stepper.SetSteps(steps);
  else
    stepper.Calibrate(kernel_us);
  stepper.Launch();  // so that the first that counts does not load code
  stepper.Wait();
  std::printf("ready %d %u\n", static_cast<int>(getpid()), stepper.Steps());
  std::fflush(stdout);
  int count = 0;
  unsigned period_us = 0, seed = 0, all = 0;
  while (std::scanf(" run %d %u %u", &count, &period_us, &seed) == 3) {
    std::vector<double> us;
    unsigned random = seed;
    double arrival = NowUs();
    for (int i = 0; i < count; ++i) {
      arrival += seed == 0 ? period_us : -std::log(Uniform(random)) * period_us;
      if (NowUs() < arrival) SleepUntil(arrival);
      stepper.Launch();
      stepper.Wait();
      us.push_back(NowUs() - arrival);
    }
    for (int i = 0; i < count; ++i) std::printf("%s%.1f", i == 0 ? "" : " ", us[static_cast<size_t>(i)]);
    std::printf("\n");
    std::fflush(stdout);
    all += static_cast<unsigned>(count);
  }
  const bool right = stepper.Right();
  std::printf("done %u %s\n", all, right ? "right" : "WRONG");
  return right ? 0 : 1;
}
