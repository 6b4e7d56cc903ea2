// Where a control daemon and its clients meet, and what they say there: packets of text. A client sends
// kConnectRequest and gets "server PID NAMESPACE START_TIME", a ProcessId, or "refused CODE", a CUresult. All else is a
// command, whose answer is the text to print.
#pragma once

#include <string>

namespace tessera::soft {

inline constexpr const char* kMpsPipeVariable = "CUDA_MPS_PIPE_DIRECTORY";
inline constexpr const char* kMpsLogVariable = "CUDA_MPS_LOG_DIRECTORY";
inline constexpr const char* kMpsPercentageVariable = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";

inline constexpr const char* kConnectRequest = "connect";
inline constexpr int kMostAnswerBytes = 64 << 10;

// The socket has the name that the real daemon's has.
inline std::string MpsSocketIn(const std::string& directory) { return directory + "/control"; }

}  // namespace tessera::soft
