// Stands in for gloo_group.cc where Gloo was not found.
#include "collectives/gloo_group.h"

namespace zero {

// Never made.
class GlooGroup::Impl {};

absl::StatusOr<std::unique_ptr<GlooGroup>> GlooGroup::Create(const Options&) {
  return absl::UnimplementedError(
      "this build has no Gloo, with which processes on CPUs talk to each other; install Debian's "
      "package libgloo-dev and build again, or run ranks as threads");
}

GlooGroup::GlooGroup(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GlooGroup::~GlooGroup() = default;

int GlooGroup::rank() const { return 0; }
int GlooGroup::size() const { return 1; }
absl::Duration GlooGroup::deadline() const { return absl::ZeroDuration(); }
absl::Status GlooGroup::AllToAll(const Stream&, const char*, absl::Span<const AllToAllPiece>) {
  return absl::UnimplementedError("no Gloo");
}
absl::Status GlooGroup::AllGather(const Stream&, const char*, absl::Span<const AllGatherPiece>) {
  return absl::UnimplementedError("no Gloo");
}
absl::Status GlooGroup::Barrier(const Stream&, const char*) {
  return absl::UnimplementedError("no Gloo");
}
void GlooGroup::Abort(const absl::Status&) {}
absl::Status GlooGroup::Health() const { return absl::UnimplementedError("no Gloo"); }
TrafficTable GlooGroup::traffic() const { return {}; }

}  // namespace zero
