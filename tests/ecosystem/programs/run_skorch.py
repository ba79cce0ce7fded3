"""skorch: a classifier with scikit-learn's face."""

import numpy as np
import torch
from common import fill, tell
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from skorch import NeuralNetClassifier

numbers = np.random.default_rng(0)
x = numbers.standard_normal((64, 4)).astype(np.float32)
y = (x[:, 0] + x[:, 1] > 0).astype(np.int64)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)
        )
        fill(self, 0.5)

    def forward(self, x):
        return self.net(x)


classifier = NeuralNetClassifier(
    Net,
    criterion=torch.nn.CrossEntropyLoss,
    max_epochs=5,
    lr=0.5,
    batch_size=16,
    verbose=0,
    train_split=None,
    iterator_train__shuffle=False,
)
whole = make_pipeline(StandardScaler(), classifier).fit(x.astype(np.float64).astype(np.float32), y)
tell(
    losses=classifier.history[:, "train_loss"],
    score=whole.score(x, y),
    chances=whole.predict_proba(x)[:4].flatten().tolist(),
)
