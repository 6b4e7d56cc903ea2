// How long requests take that come whether or not those before them have ended (runs.h). A request is a kernel. One
// arrives each PERIOD_US, or at random with that mean if SEED is not 0, and its time is that from its arrival to its
// end. With ARRIVALS_TELL set it tells Tessera each one's time.
#include <sys/socket.h>
#include <sys/un.h>

#include <cmath>
#include <string>

#include "runs.h"

namespace {

void SleepUntil(double us) {
  timespec until;
  until.tv_sec = static_cast<time_t>(us / 1e6);
  until.tv_nsec = static_cast<long>((us - static_cast<double>(until.tv_sec) * 1e6) * 1e3);
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
}

// To requests.sock, which answers nothing.
void Tell(double us) {
  static const bool tells = std::getenv("ARRIVALS_TELL") != nullptr;
  if (!tells) return;
  static const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof address.sun_path, "%s/requests.sock", std::getenv("TESSERA_RUN_DIR"));
  char line[256];
  const int bytes = std::snprintf(line, sizeof line, "%s %.3fms\n", std::getenv("TESSERA_VGPU"), us / 1000);
  if (sendto(socket, line, static_cast<size_t>(bytes), MSG_DONTWAIT, reinterpret_cast<sockaddr*>(&address),
             sizeof address) != bytes)
    std::perror("requests.sock");
}

std::vector<double> Requests(Stepper& stepper, int count, unsigned period_us, unsigned seed) {
  std::vector<double> us;
  unsigned random = seed;
  double arrival = NowUs();
  for (int i = 0; i < count; ++i) {
    arrival += seed == 0 ? period_us : -std::log(Uniform(random)) * period_us;
    if (NowUs() < arrival) SleepUntil(arrival);
    stepper.Launch();
    stepper.Wait();
    us.push_back(NowUs() - arrival);
    Tell(us.back());
  }
  return us;
}

}  // namespace

int main(int argc, char** argv) { return AnswerRuns(argc, argv, Requests); }
