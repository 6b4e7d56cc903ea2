// The markers of a context against a driver whose events the test ends.
#include "shim/gate/markers.h"

#include <gtest/gtest.h>

#include <cstdarg>
#include <deque>
#include <string>

#include "shim/gate/capture.h"
#include "shim/load/real.h"
#include "shim/process/say.h"

namespace {

using namespace tessera::cuda;

struct FakeDriver {
  struct Event {
    CUresult state = CUDA_SUCCESS;
  };
  std::deque<Event> events;  // stay where they are
  CUresult record = CUDA_SUCCESS;
  bool busy = true;  // the context has work that has not ended
  bool capturing = false;
  std::string said;
};
FakeDriver* driver;

CUresult Create(CUevent* event, unsigned) {
  driver->events.emplace_back();
  *event = reinterpret_cast<CUevent>(&driver->events.back());
  return CUDA_SUCCESS;
}

CUresult Record(CUcontext, CUevent event) {
  if (driver->record == CUDA_SUCCESS)
    reinterpret_cast<FakeDriver::Event*>(event)->state = driver->busy ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
  return driver->record;
}

CUresult Query(CUevent event) { return reinterpret_cast<FakeDriver::Event*>(event)->state; }

}  // namespace

void* tessera_real_table[tessera::shim::kSymbols];

namespace tessera::shim {

bool AnyCapture() { return driver->capturing; }
RelaxedCapture::RelaxedCapture() : before_(CU_STREAM_CAPTURE_MODE_RELAXED) {}
RelaxedCapture::~RelaxedCapture() { EXPECT_EQ(before_, CU_STREAM_CAPTURE_MODE_RELAXED); }
void Say(const char* format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  driver->said += text;
}

namespace {

class MarkersTest : public testing::Test {
 protected:
  MarkersTest() {
    driver = &driver_;
    tessera_real_table[k_cuEventCreate] = reinterpret_cast<void*>(&Create);
    tessera_real_table[k_cuCtxRecordEvent] = reinterpret_cast<void*>(&Record);
    tessera_real_table[k_cuEventQuery] = reinterpret_cast<void*>(&Query);
  }

  void Submit(int count = 1) { gate_.given += count; }
  // The GPU has done all that it was given.
  void End(CUresult state = CUDA_SUCCESS) {
    for (auto& event : driver_.events) event.state = state;
  }

  FakeDriver driver_;
  Gate gate_{};
  Markers markers_{gate_};
};

TEST_F(MarkersTest, TellWhenAllWorkHasEnded) {
  EXPECT_TRUE(markers_.Drained());
  Submit(3);
  EXPECT_FALSE(markers_.Covered());
  markers_.Place(10, false);
  EXPECT_TRUE(markers_.Covered());
  EXPECT_FALSE(markers_.Drained());
  markers_.Observe(20, 100);
  EXPECT_EQ(markers_.InFlight(), 3);
  End();
  markers_.Observe(30, 100);
  EXPECT_TRUE(markers_.Drained());
  EXPECT_EQ(markers_.InFlight(), 0);
  EXPECT_EQ(markers_.LastReached(), 30);
  Submit();
  EXPECT_FALSE(markers_.Drained());
}

// A process that was frozen after its work had ended: the marker that comes then is reached at once.
TEST_F(MarkersTest, AMarkerBehindWorkThatHadEndedProvesNothing) {
  Submit();
  markers_.Place(10, false);
  End();
  markers_.Observe(20, 100);
  EXPECT_EQ(markers_.YoungestReached(), 0) << "it may have been submitted at any time";
  Submit();
  driver_.busy = false;
  markers_.Place(30, false);
  markers_.Observe(40, 100);
  EXPECT_EQ(markers_.YoungestReached(), 10);
  markers_.Place(50, false);  // without work
  markers_.Observe(60, 100);
  EXPECT_EQ(markers_.YoungestReached(), 10);
  Submit();
  markers_.Place(70, false);
  markers_.Observe(80, 100);
  EXPECT_EQ(markers_.YoungestReached(), 50);
}

TEST_F(MarkersTest, AContextThatFailsHasNothingToWaitFor) {
  Submit();
  markers_.Place(10, true);
  End(CUDA_ERROR_ILLEGAL_ADDRESS);
  markers_.Observe(20, 100);
  EXPECT_TRUE(markers_.Drained());
  driver_.record = CUDA_ERROR_ILLEGAL_ADDRESS;
  Submit();
  markers_.Place(30, true);
  markers_.Observe(40, 100);
  EXPECT_TRUE(markers_.Drained());
  EXPECT_EQ(driver_.said, "");
}

TEST_F(MarkersTest, AnOldDriverIsSaidToBeOneOnce) {
  driver_.record = CUDA_ERROR_SHARED_OBJECT_INIT_FAILED;  // what stands in the place of a function that is missing
  for (int i = 0; i < 3; ++i) {
    Submit();
    markers_.Place(10, true);
    markers_.Observe(20, 100);
    EXPECT_TRUE(markers_.Drained());
  }
  EXPECT_NE(driver_.said.find("driver 555 or newer"), std::string::npos);
  EXPECT_EQ(driver_.said.find("driver 555"), driver_.said.rfind("driver 555"));
}

TEST_F(MarkersTest, NoneIsPlacedDuringACapture) {
  driver_.capturing = true;
  Submit();
  markers_.Place(10, false);
  EXPECT_FALSE(markers_.Covered());
  EXPECT_TRUE(driver_.events.empty());
}

TEST_F(MarkersTest, WhatTheRingHasNoRoomForIsCoveredLater) {
  for (int i = 0; i < 100; ++i) {
    Submit();
    markers_.Place(i, false);
  }
  EXPECT_FALSE(markers_.Covered());
  EXPECT_LE(driver_.events.size(), 64u);
  End();
  markers_.Observe(200, 100);
  EXPECT_FALSE(markers_.Drained());
  markers_.Place(300, false);
  End();
  markers_.Observe(400, 100);
  EXPECT_TRUE(markers_.Drained());
}

TEST_F(MarkersTest, AnotherContextBeginsAnew) {
  Submit(5);
  markers_.Place(10, false);
  markers_.Reset();
  EXPECT_TRUE(markers_.Drained());
  EXPECT_EQ(markers_.InFlight(), 0);
  Submit();
  markers_.Place(20, false);
  EXPECT_EQ(driver_.events.size(), 2u) << "events end with their context";
}

}  // namespace
}  // namespace tessera::shim
