// RUN: xdsl-opt %s --print-op-generic | xdsl-opt | filecheck %s

func.func @main(%x: tensor<?x27x64xf32>, %y: tensor<?x?x64xf32>) {
  %z = pebble.batch_matmul_transpose_b %x, %y : (tensor<?x27x64xf32>, tensor<?x?x64xf32>) -> tensor<?x27x?xf32>
  func.return
}

// CHECK: %z = pebble.batch_matmul_transpose_b %x, %y : (tensor<?x27x64xf32>, tensor<?x?x64xf32>) -> tensor<?x27x?xf32>
