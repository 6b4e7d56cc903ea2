#pragma once

#include <vector>

#include "base/result.h"

namespace tessera::plan {

// How fast a program's kernels run on a part of the GPU's SMs, against all of them. Straight lines between the points
// that are known, from nothing at no SMs; 1 from the last one on. Without points it is proportional.
class SpeedCurve {
 public:
  struct Point {
    double sms = 1;    // part of the SMs, (0, 1]
    double speed = 1;  // against all SMs, (0, 1]
  };

  SpeedCurve() = default;
  // ERANGE: a number outside its range. EINVAL: parts of SMs that do not ascend, or a speed that falls.
  static Result<SpeedCurve> Of(std::vector<Point> points);
  // Proportional up to this part of the SMs, (0, 1], and full from there on.
  static SpeedCurve Saturating(double at);

  // `sms`: [0, 1].
  double At(double sms) const;
  // The least part of the SMs at which the speed is so much, [0, 1].
  double SmsFor(double speed) const;

  const std::vector<Point>& points() const { return points_; }

 private:
  std::vector<Point> points_ = {{1, 1}};  // the last one's speed is 1
};

}  // namespace tessera::plan
