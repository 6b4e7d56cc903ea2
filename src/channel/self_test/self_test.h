// Whether channel control works with the driver that runs: tessera-channel-test (self_test_main.cc) tries it on a
// context of its own and prints one line of JSON, which is read here. Status 0 alone is no proof that RM did anything,
// so it judges by the progress of a kernel.
#pragma once

#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace tessera::channel {

// A test that passed.
struct SelfTest {
  std::string driver;  // "580.159.04"; "soft" of soft GPUs
  Nanos slice = 0;     // that a new context has
  Nanos freeze = 0;    // how long the calls took, in the middle of a few
  Nanos thaw = 0;
};

// {"ok":true,"driver":"580.159.04","slice_us":2048,"freeze_us":470,"thaw_us":250} and
// {"ok":false,"step":"freeze","why":"the kernel went on"}, without a line's end.
std::string FormatSelfTest(const SelfTest& test);
std::string FormatFailedSelfTest(std::string_view step, std::string_view why);

// The meaning of such a line: ENOTSUP with step and reason of a test that failed, EPROTO for any other text.
Result<SelfTest> ParseSelfTest(std::string_view line);

// Runs the test on the GPU of this UUID ("GPU-8e1ab4f5-…"; empty: the first), which takes a second or two. The program
// lies in lib/tessera of the installation of this one. Any thread. ETIMEDOUT after a minute: then it was killed.
Result<SelfTest> RunSelfTest(const std::string& uuid);

// The version in the text of /proc/driver/nvidia/version; empty if there is none.
std::string DriverVersion(std::string_view text);

}  // namespace tessera::channel
