"""A small BERT on images read as sequences, with 40 % random labels: three losses in Hugging Face's Trainer.

    pip install 'labelhedge[data,transformers]'
    python examples/huggingface_trainer.py [--noise 0.4] [--epochs 10] [--seed 0]

Digits (UCI, CC BY 4.0, E. Alpaydin and C. Kaynak): 8 × 8 images, 1,617 for training and 180 for testing. Each row of
an image, 8 pixels that are dark or bright, is one of 256 words. Nothing is downloaded; the test labels are clean. One
small data set and no tuning: it shows how to call the losses, not which is best.
"""

import argparse
import tempfile

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification, PrinterCallback, Trainer, TrainingArguments

import labelhedge as lh
from labelhedge.integrations.transformers import PerSampleTrainer, loss_function


def sentences(inputs: np.ndarray, labels: np.ndarray) -> list[dict]:
    words = torch.from_numpy((inputs.reshape(-1, 8, 8) > 0) @ 2 ** np.arange(8))
    return [{"input_ids": row, "labels": label} for row, label in zip(words, labels.tolist(), strict=True)]


def model(seed: int) -> BertForSequenceClassification:
    torch.manual_seed(seed)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    return BertForSequenceClassification(BertConfig(vocab_size=256, max_position_embeddings=8, num_labels=10, **sizes))


def accuracy(trainer: Trainer, test: list[dict]) -> float:
    predicted = trainer.predict(test)
    return (predicted.predictions.argmax(-1) == predicted.label_ids).mean()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--noise", type=float, default=0.4, help="share of labels drawn at random, 0 to 1 (0.4)")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    torch.set_num_threads(1)  # the model is too small for more
    digits = lh.data.load("digits", seed=options.seed)
    noise = lh.noise.uniform(digits.train.labels, options.noise, num_classes=10, seed=options.seed)
    train = sentences(digits.train.inputs, noise.labels)
    test = sentences(digits.test.inputs, digits.test.labels)
    print(f"{len(train):,} sequences, {noise.flipped.mean():.1%} of the labels wrong, {options.epochs} epochs\n")

    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            folder,
            num_train_epochs=options.epochs,
            per_device_train_batch_size=64,
            per_device_eval_batch_size=256,
            learning_rate=3e-3,
            seed=options.seed,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        )
        common = {"args": args, "train_dataset": train}
        criterion = lh.ALDRKLLoss(num_samples=len(train))
        trainers = {
            "cross entropy": Trainer(model(options.seed), **common),
            "ALDR-KL": Trainer(model(options.seed), **common, compute_loss_func=loss_function(lh.ALDRKLLoss())),
            "ALDR-KL, Algorithm 1": PerSampleTrainer(model(options.seed), **common, criterion=criterion),
        }
        for name, trainer in trainers.items():
            trainer.remove_callback(PrinterCallback)
            trainer.train()
            print(f"{name:<22} test accuracy {accuracy(trainer, test):.1%}", flush=True)

    wrong = torch.from_numpy(noise.flipped)
    print(
        f"\nmean λ of right labels {criterion.lam[~wrong].mean():.3f}, of wrong ones {criterion.lam[wrong].mean():.3f}"
    )


if __name__ == "__main__":
    main()
