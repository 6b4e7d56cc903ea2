#pragma once

#include <rapidcheck.h>

namespace tessera::sched {

// Any of the range in every case of a property test: by itself rapidcheck begins with small ones, and that would be few
// kinds of events.
template <typename T>
T Number(T least, T most) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<T>(least, most + 1));
}

}  // namespace tessera::sched
