// @ts-check
import { equal } from "./assert.js";
import * as format from "../format.js";

/** Thin blanks as plain ones, so that tests can be read. @param {string} text */
const plain = (text) => text.replaceAll("\u202f", " ").replaceAll("\u2212", "-");

/** @type {Record<string, () => void>} */
export const tests = {
  "times take the unit that fits"() {
    const cases = [
      [0, "0"],
      [1, "1 ns"],
      [812, "812 ns"],
      [1000, "1.00 µs"],
      [7828, "7.83 µs"],
      [999_600, "1.00 ms"],
      [43_198_133, "43.2 ms"],
      [1_293_515_607, "1.29 s"],
      [99_960_000_000, "100 s"],
      [125_000_000_000, "2 min 05 s"],
      [12_000_000_000_000, "3 h 20 min"],
      [-5000, "-5.00 µs"],
      [0.5, "0.500 ns"],
      [12.34, "12.3 ns"],
    ];
    for (const [ns, text] of cases) equal(plain(format.time(/** @type {number} */ (ns))), text);
    equal(format.time(null), format.NONE);
    equal(format.time(NaN), format.NONE);
    equal(plain(format.time(365.25 * 86400e9)), "8766 h 00 min");
  },
  "files in a line for a shell"() {
    equal(
      format.shellLine("gputrace view", ["a.json", "rank 0.json", "it's", "-x", "-y z", "$(reboot)", "é"]),
      "gputrace view a.json 'rank 0.json' 'it'\\''s' ./-x './-y z' '$(reboot)' 'é'",
    );
  },
  "exact times keep each nanosecond"() {
    equal(plain(format.timeExact(43_198_133)), "43 198 133 ns");
    equal(plain(format.timeExact(1234)), "1234 ns");
    equal(plain(format.moment(1_293_515_607, 1)), "1293.515 607 ms");
    equal(plain(format.moment(293_515_607, 1000)), "293.516 ms");
    equal(plain(format.moment(-1_293_515_607, 100_000)), "-1.2935 s");
    equal(plain(format.moment(1_293_515_607, 1_000_000)), "1.294 s");
  },
  "sizes and bandwidths"() {
    equal(plain(format.bytes(424)), "424 B");
    equal(plain(format.bytes(4 * 2 ** 20)), "4.00 MiB");
    equal(plain(format.bytesShort(2097152)), "2 MiB");
    equal(plain(format.bandwidth(0.35906)), "359 MB/s");
    equal(plain(format.bandwidth(158.2)), "158 GB/s");
    equal(plain(format.bandwidth(0.000510986)), "511 kB/s");
    equal(format.bandwidth(null), format.NONE);
  },
  "percentages never claim none or all wrongly"() {
    equal(plain(format.percent(0)), "0 %");
    equal(plain(format.percent(0.0001)), "<0.1 %");
    equal(plain(format.percent(0.21016)), "21.0 %");
    equal(plain(format.percent(0.99999)), ">99.9 %");
    equal(plain(format.percent(1)), "100 %");
    equal(plain(format.percent(12.5)), "1250 %");
  },
  "counts and differences"() {
    equal(plain(format.count(1234567)), "1 234 567");
    equal(plain(format.countShort(12_400_000)), "12.4 M");
    equal(plain(format.signed(format.time, 5000)), "+5.00 µs");
    equal(plain(format.signed(format.time, -5000)), "-5.00 µs");
    equal(plain(format.digits(0.0123)), "0.0123");
    for (const [text, short] of [
      ["20.0 ms", "20 ms"],
      ["2.50 s", "2.5 s"],
      ["100 ns", "100 ns"],
      ["0.0100 s", "0.01 s"],
      ["1.25", "1.25"],
      ["10.0", "10"],
    ])
      equal(format.trimmed(text), short);
  },
  "short names of kernels"() {
    const cases = [
      ["void fbgemm_gpu::permute_2D_lengths_kernel<int>(int, int, int const*, int const*, int*)", "permute_2D_lengths_kernel"],
      ["ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)", "ncclKernel_AllReduce_RING_LL_Sum_float"],
      ["Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD (Pinned -> Device)"],
      ["void at::native::(anonymous namespace)::max_pool<float, std::pair<int, 3>>(float*)", "max_pool"],
      ["simulated_sgemm_128x128_nn", "simulated_sgemm_128x128_nn"],
      ["foo::bar::operator()(int)", "bar::operator()"],
      ["a<b", "a"], ["<script>alert(1)</script>", "<script>alert(1)</script>"],
    ];
    for (const [name, short] of cases) equal(format.shortName(name), short);
    for (const name of ["", "(", "<", "<<<<", ")".repeat(9), "<".repeat(3000), "x".repeat(100000)]) equal(typeof format.shortName(name), "string");
  },
  "template arguments tell kernels of one name apart"() {
    equal(
      format.templateArguments(
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, at::detail::Array<char*, 1>>(int, float)",
      ),
      "<4, FillFunctor<float>, Array<char*, 1>>",
    );
    for (const name of ["plain", "a<b", "<b>", "Memcpy HtoD (Pinned -> Device)", "<".repeat(3000)])
      equal(format.templateArguments(name), "");
  },
  "fields of CSV"() {
    equal(format.csv(["a", "b"], [["x,y", 1], ['say "no"', null], ["=1+1", -2]]), 'a,b\r\n"x,y",1\r\n"say ""no""",\r\n\'=1+1,-2\r\n');
    equal(format.middle("abcdefghij", 5).length, 5);
  },
};
