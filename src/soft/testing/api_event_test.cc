#include "soft/testing/test_driver.h"

namespace tessera::soft {
namespace {

using EventTest = DriverTest;

TEST_F(EventTest, FollowsTheStreamItWasRecordedIn) {
  const CUstream stream = NewStream();
  const CUevent event = NewEvent();
  EXPECT_OK(d.cuEventQuery(event));  // one that was never recorded has happened
  Gate gate;
  gate.Hold(stream);
  EXPECT_OK(d.cuEventRecord(event, stream));
  EXPECT_CU(CUDA_ERROR_NOT_READY, d.cuEventQuery(event));
  gate.Open();
  EXPECT_OK(d.cuEventSynchronize(event));
  EXPECT_OK(d.cuEventQuery(event));
}

TEST_F(EventTest, StreamsWaitForWhatWasRecordedThen) {
  const CUstream first = NewStream();
  const CUstream second = NewStream();
  const CUevent event = NewEvent(CU_EVENT_DISABLE_TIMING);
  const CUdeviceptr words = NewWords(1);
  Gate gate, again;
  gate.Hold(first);
  EXPECT_OK(d.cuMemsetD32Async(words, 1, 1, first));
  EXPECT_OK(d.cuEventRecord(event, first));
  EXPECT_OK(d.cuStreamWaitEvent(second, event, 0));
  EXPECT_OK(d.cuMemsetD32Async(words, 2, 1, second));
  // A later record concerns later waits only.
  again.Hold(first);
  EXPECT_OK(d.cuEventRecord(event, first));
  EXPECT_CU(CUDA_ERROR_NOT_READY, d.cuStreamQuery(second));
  gate.Open();
  EXPECT_OK(d.cuStreamSynchronize(second));
  EXPECT_EQ(Word(words), 2u);
  EXPECT_CU(CUDA_ERROR_NOT_READY, d.cuEventQuery(event));
}

TEST_F(EventTest, MeasuresTime) {
  const CUstream stream = NewStream();
  const CUevent start = NewEvent(), end = NewEvent(), untimed = NewEvent(CU_EVENT_DISABLE_TIMING);
  float milliseconds = -1;
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, d.cuEventElapsedTime(&milliseconds, start, end));
  EXPECT_OK(d.cuEventRecord(start, stream));
  Gate gate;
  gate.Hold(stream);
  EXPECT_OK(d.cuEventRecord(end, stream));
  EXPECT_OK(d.cuEventRecord(untimed, stream));
  EXPECT_OK(d.cuEventSynchronize(start));
  EXPECT_CU(CUDA_ERROR_NOT_READY, d.cuEventElapsedTime(&milliseconds, start, end));
  gate.Open();
  EXPECT_OK(d.cuEventSynchronize(untimed));
  EXPECT_OK(d.cuEventElapsedTime(&milliseconds, start, end));
  EXPECT_GT(milliseconds, 0);
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, d.cuEventElapsedTime(&milliseconds, start, untimed));
}

TEST_F(EventTest, MayBeDestroyedWhilePending) {
  const CUstream stream = NewStream();
  const CUevent event = NewEvent();
  Gate gate;
  gate.Hold(stream);
  EXPECT_OK(d.cuEventRecord(event, stream));
  EXPECT_OK(d.cuStreamWaitEvent(nullptr, event, 0));
  EXPECT_OK(d.cuEventDestroy_v2(event));
  gate.Open();
  EXPECT_OK(d.cuStreamSynchronize(nullptr));
}

TEST_F(EventTest, RefusesBadArguments) {
  CUevent event = nullptr;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuEventCreate(&event, 0x100));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuEventCreate(nullptr, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuEventCreate(&event, CU_EVENT_INTERPROCESS));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, d.cuEventDestroy_v2(nullptr));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, d.cuEventQuery(nullptr));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, d.cuEventRecord(nullptr, nullptr));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, d.cuStreamWaitEvent(nullptr, nullptr, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuStreamWaitEvent(nullptr, NewEvent(), 5));
  // External records are for captures.
  EXPECT_CU(CUDA_ERROR_ILLEGAL_STATE, d.cuEventRecordWithFlags(NewEvent(), NewStream(), CU_EVENT_RECORD_EXTERNAL));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_STATE, d.cuStreamWaitEvent(NewStream(), NewEvent(), CU_EVENT_WAIT_EXTERNAL));
}

TEST_F(EventTest, TieContextsTogether) {
  const CUstream here = NewStream();
  const CUevent event = NewEvent();
  const CUdeviceptr words = NewWords(1);
  Gate gate;
  gate.Hold(here);
  EXPECT_OK(d.cuMemsetD32Async(words, 3, 1, here));
  EXPECT_OK(d.cuEventRecord(event, here));

  CUcontext other = nullptr;
  ASSERT_OK(d.cuCtxCreate_v2(&other, 0, device));
  const CUstream there = NewStream();
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, d.cuEventRecord(event, there));  // an event of another context
  EXPECT_OK(d.cuStreamWaitEvent(there, event, 0));
  EXPECT_CU(CUDA_ERROR_NOT_READY, d.cuStreamQuery(there));
  gate.Open();
  EXPECT_OK(d.cuStreamSynchronize(there));
  EXPECT_OK(d.cuStreamQuery(here));
  EXPECT_OK(d.cuCtxDestroy_v2(other));
  EXPECT_OK(d.cuCtxSetCurrent(context));
}

}  // namespace
}  // namespace tessera::soft
