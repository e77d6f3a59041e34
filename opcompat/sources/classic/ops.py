"""Which TensorFlow ops may stand in a graph that becomes a JAX function, and why others may not.

An allow-list: nothing that is not named here is ever run or converted. It is what tf2jax 0.3.8 converts, without what
it converts into something else than TensorFlow computes, and without what changes state.
"""

from __future__ import annotations

import re

_NAMES = """
    Abs Acosh Add AddN AddV2 All Angle Any ArgMax ArgMin Asinh Assert Atan2 Atanh AvgPool BatchMatMulV2
    BatchToSpaceND BesselI0e BesselI1e BiasAdd Bitcast BitwiseAnd BitwiseOr BitwiseXor BroadcastArgs BroadcastTo
    Case Cast Ceil CheckNumerics Cholesky Complex ComplexAbs ConcatV2 Conj ConjugateTranspose Const Conv2D
    Conv2DBackpropInput Cos Cosh Cumprod Cumsum DepthwiseConv2dNative Digamma Div DivNoNan Eig Einsum Elu
    EnsureShape Equal Erf Erfc Erfinv Exp ExpandDims Expm1 FFT FFT2D FFT3D Fill Floor FloorDiv FloorMod FresnelCos
    FresnelSin FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3 GatherNd GatherV2 Greater GreaterEqual IFFT IFFT2D
    IFFT3D IRFFT IRFFT2D IRFFT3D Identity IdentityN If Igamma Igammac Imag InplaceAdd InplaceUpdate Invert
    InvertPermutation IsFinite L2Loss LeakyRelu LeftShift Less LessEqual Lgamma Log Log1p LogSoftmax LogicalAnd
    LogicalNot LogicalOr LowerBound MatMul MatrixBandPart MatrixDiagV3 MatrixSetDiagV3 MatrixTriangularSolve Max
    MaxPool Maximum Mean Min Minimum Mul MulNoNan Neg NoOp NotEqual OneHot OnesLike Pack Pad PadV2 PartitionedCall
    Placeholder PopulationCount Pow PreventGradient Prod Qr RFFT RFFT2D RFFT3D Range Rank ReadVariableOp Real
    RealDiv Reciprocal Relu Relu6 Reshape ResizeBilinear ResizeNearestNeighbor ResourceGather ReverseV2 RightShift
    Roll Round Rsqrt ScatterNd Select SelectV2 SelfAdjointEigV2 Shape Sigmoid Sign Sin Sinh Size Slice Softmax
    Softplus SpaceToBatchND SparseSoftmaxCrossEntropyWithLogits Split SplitV Sqrt Square SquaredDifference Squeeze
    StatefulPartitionedCall StatelessCase StatelessIf StatelessWhile StopGradient StridedSlice Sub Sum Svd Tan Tanh
    TensorListFromTensor TensorListGetItem TensorListReserve TensorListSetItem TensorListStack TensorScatterUpdate
    Tile TopKV2 Transpose Unpack UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd UnsortedSegmentSum
    UpperBound While XlaConv XlaConvV2 XlaDot XlaDotV2 XlaDynamicSlice XlaDynamicUpdateSlice XlaGather
    XlaOptimizationBarrier XlaPad XlaReducePrecision XlaReduceWindow XlaScatter XlaSelectAndScatter
    XlaVariadicReduceV2 XlaVariadicSort ZerosLike
"""
ALLOWED = frozenset(_NAMES.split())

_DRAWS = (
    "draws random numbers from a state inside TensorFlow, which no artifact has; next: pass the noise or the latents "
    "into the signature as an input, or draw them in a JAX policy"
)
_STATELESS = (
    "draws from TensorFlow's own Philox generator, and tf2jax would put other draws in its place (measured: it gives "
    "the sum of the seed to JAX's generator); next: pass the noise or the latents into the signature as an input"
)
_FILES = "reads or writes files, or the network; next: leave it out of the signature"
_STATE = (
    "changes a variable, and artifacts have no state inside; next: take the state as an input and return the new one "
    "as an output"
)
_PYTHON = "calls Python, which is not in the file; next: express it in TensorFlow ops"
_XLA = (
    "is an op that jax2tf wrote before JAX 0.4.8, and tf2jax knows no counterpart; next: export the policy again with "
    "a newer jax2tf, or with jax.export"
)
_TABLE = "is a lookup table, whose contents lie outside the graph; next: look it up before the call"
_TEXT = "works on text, which JAX has not; next: leave it out of the signature"
_OPEN = "gives a result whose shape depends on values; next: give it a fixed size, with a mask"
_VARIABLE = "is a variable of TensorFlow 1; next: load the model in TensorFlow 2 and save it again"

_REASONS: tuple[tuple[str, str], ...] = (
    (r"Stateless.*(Random|Multinomial|TruncatedNormal|Binomial|Gamma|Poisson)|XlaRngBitGenerator", _STATELESS),
    (
        r"Random|Multinomial|TruncatedNormal|Parameterized|Stateful(Random|Standard|Uniform|Truncated)|Rng|.*Shuffle"
        r"|StatefulUniform",
        _DRAWS,
    ),
    (r"ReadFile|WriteFile|Save|Restore|MatchingFiles|.*Reader|.*Dataset|.*Iterator|Merge.*Checkpoint|Sharded", _FILES),
    (r"Audio|Image|Print|Send|_?Recv|_Send|Rpc|Queue|.*Summary|.*Checkpoint", _FILES),
    (r"(Eager)?PyFunc", _PYTHON),
    (r"Assign|ResourceScatter|ResourceApply|Scatter(Add|Sub|Update|Mul|Div|Max|Min)|.*Stack(Push|Pop)V2", _STATE),
    (r"VarHandleOp|VariableV2|Variable|IsVariableInitialized|VarIsInitializedOp", _VARIABLE),
    (r"Xla", _XLA),
    (r".*(HashTable|LookupTable)|Lookup", _TABLE),
    (r"String|Regex|.*String|DecodeBase64|EncodeBase64|Substr|UnicodeE|ParseExample|DecodeRaw|Decode", _TEXT),
    (r"Where$|Unique|BooleanMask|NonMaxSuppression|ListDiff|DynamicPartition", _OPEN),
)
"""The first whose expression an op's name begins with tells why."""


def reason(op: str) -> str:
    """Why an op that is not in ALLOWED is refused, and what to do about it."""
    for pattern, text in _REASONS:
        if re.match(pattern, op):
            return text
    return "tf2jax 0.3.8 has no counterpart in JAX; next: express it by other ops, or convert --via tf2onnx"
