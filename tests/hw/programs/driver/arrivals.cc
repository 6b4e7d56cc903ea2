// How long requests take that come whether or not those before them have ended (runs.h). A request is a kernel. One
// arrives each PERIOD_US, or at random with that mean if SEED is not 0, and its time is that from its arrival to its
// end.
#include <cmath>

#include "runs.h"

namespace {

void SleepUntil(double us) {
  timespec until;
  until.tv_sec = static_cast<time_t>(us / 1e6);
  until.tv_nsec = static_cast<long>((us - static_cast<double>(until.tv_sec) * 1e6) * 1e3);
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
}

std::vector<double> Requests(Stepper& stepper, int count, unsigned period_us, unsigned seed) {
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
  return us;
}

}  // namespace

int main(int argc, char** argv) { return AnswerRuns(argc, argv, Requests); }
