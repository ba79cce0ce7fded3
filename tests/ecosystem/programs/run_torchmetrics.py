"""torchmetrics: metrics of several domains, over two updates."""

import torchmetrics as m
from common import digest, normal, tell, tokens

numbers = {}
predicted, target = normal(40, 5).softmax(-1), tokens(40, most=5) - 1
cases = {
    "accuracy": m.Accuracy(task="multiclass", num_classes=5),
    "f1": m.F1Score(task="multiclass", num_classes=5, average="macro"),
    "auroc": m.AUROC(task="multiclass", num_classes=5),
    "confusion": m.ConfusionMatrix(task="multiclass", num_classes=5),
    "precision": m.Precision(task="multiclass", num_classes=5, average="weighted"),
    "ece": m.CalibrationError(task="multiclass", num_classes=5),
}
for name, metric in cases.items():
    metric.update(predicted[:20], target[:20])
    metric.update(predicted[20:], target[20:])
    numbers[name] = digest(metric.compute())
a, b = normal(30), normal(30, seed=5)
for name in (
    "MeanSquaredError",
    "R2Score",
    "PearsonCorrCoef",
    "SpearmanCorrCoef",
    "MeanAbsoluteError",
):
    numbers[name] = digest(getattr(m, name)()(a, b))
x, y = normal(2, 3, 32, 32).sigmoid(), normal(2, 3, 32, 32, seed=6).sigmoid()
numbers["ssim"] = digest(m.image.StructuralSimilarityIndexMeasure(data_range=1.0)(x, y))
numbers["psnr"] = digest(m.image.PeakSignalNoiseRatio(data_range=1.0)(x, y))
numbers["perplexity"] = digest(m.text.Perplexity()(normal(2, 8, 5), tokens(2, 8, most=5)))
both = m.MetricCollection([m.MeanSquaredError(), m.MeanAbsoluteError()])
numbers["collection"] = {k: v.item() for k, v in both(a, b).items()}
tell(**numbers)
