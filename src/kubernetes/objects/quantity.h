#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tessera::kubernetes {

// The whole number that a quantity of Kubernetes is ("60Gi", "40", "1.5G", "2e3", "500m"), a fraction rounded up.
// EINVAL for anything else and for what is negative, ERANGE beyond 2^63 - 1.
// https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
Result<std::uint64_t> ParseQuantity(std::string_view text);

// The shortest quantity of so many bytes: "60Gi", "1536Mi", "5".
std::string FormatBytes(std::uint64_t bytes);

}  // namespace tessera::kubernetes
