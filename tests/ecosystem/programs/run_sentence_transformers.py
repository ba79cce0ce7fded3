"""sentence-transformers: a tiny BERT; encodings, similarities, losses, a saved model."""

import tempfile
from pathlib import Path

import torch
import transformers as t
from common import digest, fill, tell, train
from sentence_transformers import SentenceTransformer, util
from sentence_transformers.sentence_transformer import losses
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

WORDS = ["a", "the", "cat", "dog", "bird", "sat", "ran", "flew"]
WORDS += ["on", "over", "mat", "house", "tree", "quickly", "slowly", "and"]
SENTENCES = [
    "the cat sat on the mat",
    "a dog ran over the house",
    "the bird flew slowly and sat on a tree",
    "a cat and a dog ran quickly",
]
numbers = {}


def model_of(folder, mode):
    read = Transformer(folder, max_seq_length=16)
    return SentenceTransformer(
        modules=[read, Pooling(read.get_embedding_dimension(), mode), Normalize()],
        device="cpu",
    )


with tempfile.TemporaryDirectory() as folder:
    vocabulary = Path(folder) / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]))
    t.BertTokenizer(str(vocabulary)).save_pretrained(folder)
    config = t.BertConfig(
        vocab_size=5 + len(WORDS),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=32,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    fill(t.BertModel(config), 0.3).save_pretrained(folder)
    for mode in ("mean", "cls", "max"):
        model = model_of(folder, mode)
        made = model.encode(SENTENCES, convert_to_tensor=True, batch_size=3)
        numbers[mode] = digest(made)
        numbers[f"{mode} similarities"] = digest(model.similarity(made, made))
    numbers["found"] = [
        [hit["corpus_id"], hit["score"]]
        for hits in util.semantic_search(made[:2], made, top_k=3)
        for hit in hits
    ]
    numbers["array"] = model.encode(SENTENCES[:2]).flatten()[:8].tolist()
    with tempfile.TemporaryDirectory() as saved:
        model.save(saved)
        again = SentenceTransformer(saved, device="cpu")
        numbers["same again"] = bool((again.encode(SENTENCES) == model.encode(SENTENCES)).all())

    model = model_of(folder, "mean")
    pairs = [model.preprocess(SENTENCES[:2]), model.preprocess(SENTENCES[2:])]
    scores = torch.tensor([0.9, 0.1])
    for loss in (losses.CosineSimilarityLoss(model), losses.MultipleNegativesRankingLoss(model)):
        name = type(loss).__name__
        numbers[name] = train(loss, lambda loss=loss: loss(pairs, scores))

tell(**numbers)
