// How long a short kernel takes from its launch to its end, now and then: "latency KERNEL_US [STEPS]". STEPS other than
// 0 gives the length of the kernel instead of KERNEL_US. Says "ready PID STEPS"; then for each line "run COUNT GAP_US
// SEED": so many launches, each waited for, with GAP_US give or take a quarter between them, and one line with the
// microseconds of each. Ends with its input, and says "done N right" if the words are.
#include "step.h"

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
  unsigned gap_us = 0, random = 0, all = 0;
  while (std::scanf(" run %d %u %u", &count, &gap_us, &random) == 3) {
    std::vector<double> us;
    for (int i = 0; i < count; ++i) {
      random = random * 1664525u + 1013904223u;
      usleep(static_cast<useconds_t>(gap_us * (0.75 + 0.5 * (random >> 8) / (1 << 24))));
      const double begin = NowUs();
      stepper.Launch();
      stepper.Wait();
      us.push_back(NowUs() - begin);
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
