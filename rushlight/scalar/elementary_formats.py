"""Facts of float32 and float64 for the elementary functions: bit layout, constants, polynomials.

Polynomials are weighted minimax fits (Remez in 50 digits), coefficients in ascending order. Many of
float32 were rounded one coefficient at a time, lowest first, the rest fitted again after each.
Pairs and triples are one number in parts: the leading part has few enough bits that its product
with a small integer is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

from rushlight.core.dtypes import DType, float32, float64, int32, int64
from rushlight.scalar import build as s
from rushlight.scalar.ir import Expr, const

Polynomial = tuple[float, ...]


@dataclass(frozen=True)
class Format:
    """One floating-point type."""

    dtype: DType
    integer: DType  # of the same width
    mantissa: int  # stored bits
    bias: int
    split: int  # low bits to clear so that the square of what stays is exact
    tiny: float  # below it, f(x) rounds to x for each f with f(x) = x + O(x * x)
    smallest_normal: float
    log2_e: float
    ln2: tuple[float, float]
    log2_parts: tuple[float, float]  # 1 / log 2
    log10_parts: tuple[float, float]  # 1 / log 10
    two_parts: tuple[float, float]  # log10 2
    exp_range: tuple[float, float]  # outside it, exp is 0 or inf
    exp_tail: Polynomial  # (e^r - 1 - r) / r^2
    exp2_tail: Polynomial  # (2^r - 1) / r
    # float32: (log(1+f) - f + f^2/2) / f^3; float64: (2 atanh(s) - 2s) / s^3, of s^2.
    log_tail: Polynomial
    tanh_tail: Polynomial  # (tanh(x) - x) / x^3, of x^2
    erf_body: Polynomial  # erf(x)/x - 1, of x^2, for x <= 1
    erf_log: Polynomial  # -log(1 - erf(x)) for 1 <= x <= erf_end
    erf_end: float
    half_pi: tuple[float, ...]
    two_over_pi: float
    narrow_end: float  # the reduction by half_pi holds below it
    sin_tail: Polynomial  # (sin(r) - r) / r^3, of r^2
    cos_tail: Polynomial  # (cos(r) - 1 + r^2/2) / r^4, of r^2
    pow_scale: tuple[float, float]  # 2 / (3 log 2)
    pow_tail: Polynomial  # 3 (atanh(s)/s - 1 - s^2/3) / s^4, of s^2
    pow_end: float  # beyond +- this power of two the result is 0 or inf


SINGLE = Format(
    dtype=float32,
    integer=int32,
    mantissa=23,
    bias=127,
    split=12,
    tiny=2.0**-26,
    smallest_normal=2.0**-126,
    log2_e=1.4426950216293335,
    ln2=(0.693145751953125, 1.428606765330187e-06),
    log2_parts=(1.4426950216293335, 1.925963033500011e-08),
    log10_parts=(0.4342944920063019, -1.0103049952192578e-08),
    two_parts=(0.301025390625, 4.605039066518657e-06),
    exp_range=(-104.0, 89.0),
    exp_tail=(
        0.4999999403953552,
        0.16666516661643982,
        0.041668105870485306,
        0.008369133807718754,
        0.0013836632715538144,
    ),
    exp2_tail=(
        0.6931471824645996,
        0.24022650718688965,
        0.05550400912761688,
        0.009618083015084267,
        0.001334281638264656,
        0.0001545411068946123,
        1.3004734682908747e-05,
    ),
    log_tail=(
        0.3333333134651184,
        -0.250008225440979,
        0.20001260936260223,
        -0.1662333458662033,
        0.14200948178768158,
        -0.1315949559211731,
        0.12766896188259125,
        -0.07643045485019684,
    ),
    tanh_tail=(
        -0.33333317576508625,
        0.1333258658755305,
        -0.0538523450164505,
        0.021071782207184152,
        -0.00627433836466604,
    ),
    erf_body=(
        0.12837916612625122,
        -0.3761262595653534,
        0.11283578723669052,
        -0.026853347197175026,
        0.005187162198126316,
        -0.0007997853099368513,
        7.806903158780187e-05,
    ),
    erf_log=(
        -0.00018846290186047554,
        1.1295802593231201,
        0.6332165598869324,
        0.10842185467481613,
        -0.02521013654768467,
        0.0042051891796290874,
        -0.0004414486757013947,
        2.1695104805985466e-05,
    ),
    erf_end=4.0,
    half_pi=(1.570796012878418, 3.139164164167596e-07, 6.223371969669989e-14),
    two_over_pi=0.6366197466850281,
    narrow_end=8.0,
    sin_tail=(-0.16666654668798994, 0.008332160071595351, -0.00019514775834467428),
    cos_tail=(0.041666646420650606, -0.001388734439202958, 2.4435680347177185e-05),
    pow_scale=(0.961669921875, 0.00012677205086220056),
    pow_tail=(0.6000022806005415, 0.4282071222170851, 0.35127714814513666),
    pow_end=160.0,
)

DOUBLE = Format(
    dtype=float64,
    integer=int64,
    mantissa=52,
    bias=1023,
    split=27,
    tiny=2.0**-55,
    smallest_normal=2.0**-1022,
    log2_e=1.4426950408889634,
    ln2=(0.6931471805592082, 7.371002565167799e-13),
    log2_parts=(1.4426950408889634, 2.0355273740931033e-17),
    log10_parts=(0.4342944819032518, 1.098319650216765e-17),
    two_parts=(0.30102999566395283, 2.8363394551044964e-14),
    exp_range=(-746.0, 710.0),
    exp_tail=(
        0.5,
        0.16666666666666682,
        0.04166666666666609,
        0.008333333333316923,
        0.0013888888889117316,
        0.00019841269896669,
        2.480158692452399e-05,
        2.755723456936518e-06,
        2.7557582847388046e-07,
        2.5112141138710925e-08,
        2.082652397567113e-09,
    ),
    exp2_tail=(
        0.6931471805599453,
        0.24022650695910072,
        0.055504108664821736,
        0.009618129107628562,
        0.0013333558146381352,
        0.00015403530393170035,
        1.5252733865220841e-05,
        1.32154870047932e-06,
        1.0178047372712488e-07,
        7.054814408524582e-09,
        4.4572633957703355e-10,
        2.5855650496869116e-11,
    ),
    log_tail=(
        0.6666666666666734,
        0.39999999999414676,
        0.2857142874238876,
        0.22222198573024682,
        0.18183564336115465,
        0.1531405025830615,
        0.14795952995230305,
    ),
    tanh_tail=(
        -0.333333333333333,
        0.13333333333326622,
        -0.05396825396376073,
        0.021869488385858376,
        -0.008863232601470695,
        0.003592092030617698,
        -0.0014555428462242964,
        0.0005884444854952453,
        -0.0002333815572936635,
        8.331642793787619e-05,
        -1.9494671026822165e-05,
    ),
    erf_body=(
        0.1283791670955126,
        -0.3761263890318375,
        0.11283791670954857,
        -0.02686617064507289,
        0.005223977624780826,
        -0.0008548326978740127,
        0.00012055331036830993,
        -1.4925593505394225e-05,
        1.6460972795235364e-06,
        -1.6350025012847426e-07,
        1.4657878560637205e-08,
        -1.1365661464395104e-09,
        5.945254844798474e-11,
    ),
    erf_log=(
        1.7958835201731424e-07,
        1.1283773295651862,
        0.6366284876006357,
        0.10274725565892644,
        -0.01907816145582752,
        -0.000280481169572636,
        0.001768993371661714,
        -0.0006411672224335143,
        4.481929919527092e-05,
        7.036801022110269e-05,
        -4.5037809077741086e-05,
        1.6514032680160097e-05,
        -4.327054594474578e-06,
        8.505748260664998e-07,
        -1.257048102085081e-07,
        1.3626665273415798e-08,
        -1.0256960089316994e-09,
        4.796003284713291e-11,
        -1.0496103949460293e-12,
    ),
    erf_end=6.0,
    half_pi=(1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
    two_over_pi=0.6366197723675814,
    narrow_end=1024.0,
    sin_tail=(
        -0.1666666666666663,
        0.008333333333321992,
        -0.000198412698294549,
        2.7557313564712243e-06,
        -2.5050737510653866e-08,
        1.589556436908479e-10,
    ),
    cos_tail=(
        0.041666666666666595,
        -0.0013888888888873557,
        2.4801587289110432e-05,
        -2.7557314240354925e-07,
        2.0875707481973186e-09,
        -1.1358802921888158e-11,
    ),
    pow_scale=(0.9617966860532761, 7.872699542894897e-09),
    pow_tail=(
        0.5999999999999996,
        0.4285714285716765,
        0.333333333263089,
        0.27272728304956,
        0.23076835341730975,
        0.2000447477170638,
        0.17512255331700854,
        0.17983289872935487,
    ),
    pow_end=1200.0,
)


def format_of(x: Expr) -> Format:
    return DOUBLE if x.dtype is float64 else SINGLE


# ---- operations shared by the functions ----


def horner(x: Expr, coefficients: Polynomial) -> Expr:
    total = const(coefficients[-1], x.dtype)
    for coefficient in reversed(coefficients[:-1]):
        total = s.fma(total, x, coefficient)
    return total


def bits(x: Expr) -> Expr:
    return s.bits_to(x, format_of(x).integer)


def to_integer(x: Expr) -> Expr:
    """A small integral float as an integer of the same width.

    Vector units convert to int32 only.
    """
    return s.cast(s.cast(x, int32), format_of(x).integer)


def to_float(n: Expr, like: Expr) -> Expr:
    return s.cast(s.cast(n, int32), like.dtype)


def power_of_two(n: Expr, like: Expr) -> Expr:
    """2^n for a normal result; `n` is an integer of the width of `like`."""
    kind = format_of(like)
    return s.bits_to((n + kind.bias) << kind.mantissa, kind.dtype)


def scale(y: Expr, n: Expr) -> Expr:
    """y * 2^n in two steps, so that a subnormal result is rounded once and overflow gives inf."""
    half = n >> 1
    return (y * power_of_two(half, y)) * power_of_two(n - half, y)


def sign_bit(x: Expr) -> Expr:
    kind = format_of(x)
    return bits(x) & (-1 << (8 * kind.dtype.itemsize - 1))


def flip(x: Expr, sign: Expr) -> Expr:
    """x, negated where the bit `sign` is set."""
    return s.bits_to(bits(x) ^ sign, x.dtype)


def clamp(x: Expr, low: float, high: float) -> Expr:
    """Clamp that keeps NaN. Selects are one machine instruction, `min` and `max` are several."""
    x = s.where(x > high, const(high, x.dtype), x)
    return s.where(x < low, const(low, x.dtype), x)
