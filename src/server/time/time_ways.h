#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "server/channels/channel_server.h"
#include "server/model/vgpu.h"
#include "server/time/divider.h"

namespace tessera::server {

// Ways to divide the time of one GPU: finds the best that can serve now, and says why the better ones cannot. A new way
// is a row of `Rows`. Runs on the loop's thread.
class TimeWays {
 public:
  // Everything that is given outlives the object. The way is the last one, by gates, until the first choice.
  TimeWays(std::uint32_t gpu, ChannelServer& channels, const std::vector<VGpu*>& vgpus)
      : gpu_(gpu), channels_(channels), vgpus_(vgpus) {}

  // Looks which ways can serve now. True if the present way is another one since.
  bool Choose();

  Divider Present() const { return present_; }
  // Why this way was passed over; empty if it was not, and before the first choice.
  std::string WhyNot(Divider divider) const;
  // The present way and the reasons, as the log and events say them.
  std::string Text() const;
  // Means by which the present way stops the process.
  GateRecord::Stop StopFor(const Process& process) const;

 private:
  struct Row {
    Divider divider;
    const char* name;                         // as log and events say it
    std::string (*why_not)(const TimeWays&);  // empty: it can serve now
  };
  static const std::vector<Row>& Rows();

  std::string WhyUnsteerable() const;
  std::string WhySpacesUnsteerable() const;

  const std::uint32_t gpu_;
  ChannelServer& channels_;
  const std::vector<VGpu*>& vgpus_;
  Divider present_ = Rows().back().divider;
  std::map<Divider, std::string> passed_over_;  // better ways, and why they cannot serve
};

}  // namespace tessera::server
