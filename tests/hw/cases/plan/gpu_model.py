"""What Tessera's actions cost on this GPU, as plans read it."""
import tomllib

from harness import processes
from harness.bench import must_succeed
from harness.checks import expect
from harness.steering import watched


@watched("plan", soft=True, limit_s=180)
def gpu_model(bench):
    """`tessera bench --gpu-model`, with a daemon of its own while there is no other; the file goes to --out and is shown."""
    path = bench.out / "gpu_model.toml"
    words = [f"--soft={bench.tessera.soft}"] if bench.soft else []
    bench.tessera.stop()  # so that nobody else has a context on the GPU
    try:
        done = processes.run([bench.tessera.cli, "bench", "--gpu-model", "--output", path, *words], bench.left(150))
    finally:
        bench.tessera.start()
    bench.note(done)
    must_succeed(done, "the measurement")
    text = path.read_text()
    bench.tell(f"{path.name}:\n{text}")
    model = tomllib.loads(text)
    expect(bench.soft == (model["name"] == "soft"), f"it is called {model['name']}")
    moves, steering = model["moves"], model["steering"]
    return (f"{model['title']}: {model['sms']} SMs, {model['bandwidth_gb_s']:.4g} GB/s, switch {steering['switch_us']:.0f}, "
            f"freeze {steering['freeze_us']:.0f}, thaw {steering['thaw_us']:.0f} us, out {moves['out_gb_s']:.1f}, "
            f"in {moves['in_gb_s']:.1f} GB/s, context {moves['context']}, at once x{model['space_speed']:.3f}"), model
