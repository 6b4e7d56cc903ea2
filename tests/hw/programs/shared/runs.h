// Programs that time a kernel: "PROGRAM KERNEL_US [STEPS]". STEPS other than 0 gives the kernel's length instead of
// KERNEL_US. They say "ready PID STEPS"; then for each line "run COUNT PERIOD_US SEED" one line with the microseconds
// of each of so many kernels. They end with their input, and say "done N right" if the words are.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "step.h"

// A random number in (0, 1]; changes its state.
inline double Uniform(unsigned& random) {
  random = random * 1664525u + 1013904223u;
  return ((random >> 8) + 1.0) / (1 << 24);
}

// The program's main. `run(stepper, count, period_us, seed)` launches so many kernels and returns the time of each, in
// microseconds.
template <typename Run>
int AnswerRuns(int argc, char** argv, Run run) {
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
    const std::vector<double> us = run(stepper, count, period_us, seed);
    for (size_t i = 0; i < us.size(); ++i) std::printf("%s%.1f", i == 0 ? "" : " ", us[i]);
    std::printf("\n");
    std::fflush(stdout);
    all += static_cast<unsigned>(count);
  }
  const bool right = stepper.Right();
  std::printf("done %u %s\n", all, right ? "right" : "WRONG");
  return right ? 0 : 1;
}
