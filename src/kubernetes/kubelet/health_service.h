#pragma once

#include <grpcpp/grpcpp.h>

#include <string>

#include "kubernetes/proto/dra_health.grpc.pb.h"
#include "kubernetes/slices/health_board.h"

namespace tessera::kubernetes {

// Tells the kubelet how its devices are: at once, at each change, and again before what it knows is too old for it. The
// kubelet writes that into the status of pods. gRPC gives each stream a thread.
class HealthService final : public v1alpha1::DRAResourceHealth::Service {
 public:
  // `board` outlives the object.
  HealthService(std::string pool, HealthBoard& board) : pool_(std::move(pool)), board_(board) {}

  grpc::Status NodeWatchResources(grpc::ServerContext* context, const v1alpha1::NodeWatchResourcesRequest*,
                                  grpc::ServerWriter<v1alpha1::NodeWatchResourcesResponse>* writer) override;

 private:
  const std::string pool_;
  HealthBoard& board_;
};

}  // namespace tessera::kubernetes
