// RUN: xdsl-opt %s --verify-diagnostics --split-input-file | filecheck %s

func.func @main(%x: tensor<?x?x4xf32>) {
  %w = pebble.constant dense<1.0> : tensor<1x6x4xf32>
  %r = pebble.constant dense<1.0> : tensor<1x6x2xf32>
  // CHECK: expected a cell of lstm, gru, rnn, got 'cell'
  %y, %last = pebble.recurrence "cell" "forward" %x, %w, %r activations [#pebble.activation<sigmoid>, #pebble.activation<tanh>] : (tensor<?x?x4xf32>, tensor<1x6x4xf32>, tensor<1x6x2xf32>) -> (tensor<?x1x?x2xf32>, tensor<1x?x2xf32>)
  func.return
}

// -----

func.func @main(%x: tensor<?x?x4xf32>) {
  %w = pebble.constant dense<1.0> : tensor<1x6x4xf32>
  %r = pebble.constant dense<1.0> : tensor<1x6x2xf32>
  // CHECK: expected a direction of forward, reverse, bidirectional, got 'up'
  %y, %last = pebble.recurrence "gru" "up" %x, %w, %r activations [#pebble.activation<sigmoid>, #pebble.activation<tanh>] : (tensor<?x?x4xf32>, tensor<1x6x4xf32>, tensor<1x6x2xf32>) -> (tensor<?x1x?x2xf32>, tensor<1x?x2xf32>)
  func.return
}

// -----

func.func @main(%x: tensor<?x?x4xf32>) {
  %w = pebble.constant dense<1.0> : tensor<1x6x4xf32>
  %r = pebble.constant dense<1.0> : tensor<1x6x2xf32>
  // CHECK: expected 2 activations, got 1
  %y, %last = pebble.recurrence "gru" "forward" %x, %w, %r activations [#pebble.activation<tanh>] : (tensor<?x?x4xf32>, tensor<1x6x4xf32>, tensor<1x6x2xf32>) -> (tensor<?x1x?x2xf32>, tensor<1x?x2xf32>)
  func.return
}

// -----

func.func @main(%x: tensor<?x?x4xf32>, %h: tensor<1x?x2xf32>) {
  %w = pebble.constant dense<1.0> : tensor<1x6x4xf32>
  %r = pebble.constant dense<1.0> : tensor<1x6x2xf32>
  // CHECK: expected start_c beside the start_h of an lstm alone
  %y, %last = pebble.recurrence "gru" "forward" %x, %w, %r start_h %h : tensor<1x?x2xf32> start_c %h : tensor<1x?x2xf32> activations [#pebble.activation<sigmoid>, #pebble.activation<tanh>] : (tensor<?x?x4xf32>, tensor<1x6x4xf32>, tensor<1x6x2xf32>) -> (tensor<?x1x?x2xf32>, tensor<1x?x2xf32>)
  func.return
}

// -----

func.func @main(%x: tensor<?x?x4xf32>, %p: tensor<1x6xf32>) {
  %w = pebble.constant dense<1.0> : tensor<1x6x4xf32>
  %r = pebble.constant dense<1.0> : tensor<1x6x2xf32>
  // CHECK: expected peepholes of an lstm, got those of a gru
  %y, %last = pebble.recurrence "gru" "forward" %x, %w, %r peepholes %p : tensor<1x6xf32> activations [#pebble.activation<sigmoid>, #pebble.activation<tanh>] : (tensor<?x?x4xf32>, tensor<1x6x4xf32>, tensor<1x6x2xf32>) -> (tensor<?x1x?x2xf32>, tensor<1x?x2xf32>)
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>) {
  %w = pebble.constant dense<1.0> : tensor<1x6x4xf32>
  %r = pebble.constant dense<1.0> : tensor<1x6x2xf32>
  // CHECK: expected x of steps by samples by a known number, got ?x4
  %y, %last = pebble.recurrence "gru" "forward" %x, %w, %r activations [#pebble.activation<sigmoid>, #pebble.activation<tanh>] : (tensor<?x4xf32>, tensor<1x6x4xf32>, tensor<1x6x2xf32>) -> (tensor<?x1x?x2xf32>, tensor<1x?x2xf32>)
  func.return
}

// -----

func.func @main(%x: tensor<?x?x4xf32>) {
  %w = pebble.constant dense<1.0> : tensor<1x6x4xf32>
  %r = pebble.constant dense<1.0> : tensor<6x2xf32>
  // CHECK: expected a recurrent weight of rank 3, got 6x2
  %y, %last = pebble.recurrence "gru" "forward" %x, %w, %r activations [#pebble.activation<sigmoid>, #pebble.activation<tanh>] : (tensor<?x?x4xf32>, tensor<1x6x4xf32>, tensor<6x2xf32>) -> (tensor<?x1x?x2xf32>, tensor<1x?x2xf32>)
  func.return
}

// -----

func.func @main(%x: tensor<?x?x4xf32>) {
  %w = pebble.constant dense<1.0> : tensor<1x6x4xf32>
  %r = pebble.constant dense<1.0> : tensor<1x6x2xf32>
  // CHECK: expected 2 results, got 1
  %y = pebble.recurrence "gru" "forward" %x, %w, %r activations [#pebble.activation<sigmoid>, #pebble.activation<tanh>] : (tensor<?x?x4xf32>, tensor<1x6x4xf32>, tensor<1x6x2xf32>) -> (tensor<?x1x?x2xf32>)
  func.return
}

// -----

func.func @main(%x: tensor<?x?x4xf32>) {
  %w = pebble.constant dense<1.0> : tensor<1x6x5xf32>
  %r = pebble.constant dense<1.0> : tensor<1x6x2xf32>
  // CHECK: expected weight 1x6x4, got 1x6x5
  %y, %last = pebble.recurrence "gru" "forward" %x, %w, %r activations [#pebble.activation<sigmoid>, #pebble.activation<tanh>] : (tensor<?x?x4xf32>, tensor<1x6x5xf32>, tensor<1x6x2xf32>) -> (tensor<?x1x?x2xf32>, tensor<1x?x2xf32>)
  func.return
}

// -----

func.func @main(%x: tensor<?x?x4xf32>, %b: tensor<1x6xf32>) {
  %w = pebble.constant dense<1.0> : tensor<1x6x4xf32>
  %r = pebble.constant dense<1.0> : tensor<1x6x2xf32>
  // CHECK: expected bias 1x12, got 1x6
  %y, %last = pebble.recurrence "gru" "forward" %x, %w, %r bias %b : tensor<1x6xf32> activations [#pebble.activation<sigmoid>, #pebble.activation<tanh>] : (tensor<?x?x4xf32>, tensor<1x6x4xf32>, tensor<1x6x2xf32>) -> (tensor<?x1x?x2xf32>, tensor<1x?x2xf32>)
  func.return
}

// -----

func.func @main(%x: tensor<?x?x4xf32>) {
  %w = pebble.constant dense<1.0> : tensor<1x6x4xf32>
  %r = pebble.constant dense<1.0> : tensor<1x6x2xf32>
  // CHECK: expected last state 1x?x2, got 1x?x3
  %y, %last = pebble.recurrence "gru" "forward" %x, %w, %r activations [#pebble.activation<sigmoid>, #pebble.activation<tanh>] : (tensor<?x?x4xf32>, tensor<1x6x4xf32>, tensor<1x6x2xf32>) -> (tensor<?x1x?x2xf32>, tensor<1x?x3xf32>)
  func.return
}

// -----

func.func @main(%x: tensor<?x2xf32>) {
  // CHECK: expected x of steps by samples by a known number, got ?x2
  %y, %h = pebble.scan %x : tensor<?x2xf32> -> (tensor<?x?x2xf32>, tensor<?x2xf32>) {
  ^bb0(%step: tensor<?x2xf32>, %before: tensor<?x2xf32>):
    pebble.yield %before : tensor<?x2xf32>
  }
  func.return
}

// -----

func.func @main(%x: tensor<?x?x2xf32>) {
  // CHECK: expected a step, and as many states before it, after it and as results, got 1 arguments, 1 states, 1 results
  %y, %h = pebble.scan %x : tensor<?x?x2xf32> -> (tensor<?x?x2xf32>, tensor<?x2xf32>) {
  ^bb0(%before: tensor<?x2xf32>):
    pebble.yield %before : tensor<?x2xf32>
  }
  func.return
}

// -----

func.func @main(%x: tensor<?x?x2xf32>, %s: tensor<?x2xf32>) {
  // CHECK: expected 1 states to start with at most, got 2
  %y, %h = pebble.scan %x starts %s, %s : tensor<?x2xf32>, tensor<?x2xf32> : tensor<?x?x2xf32> -> (tensor<?x?x2xf32>, tensor<?x2xf32>) {
  ^bb0(%step: tensor<?x2xf32>, %before: tensor<?x2xf32>):
    pebble.yield %before : tensor<?x2xf32>
  }
  func.return
}

// -----

func.func @main(%x: tensor<?x?x2xf32>) {
  // CHECK: expected argument ?x2, got ?x3
  %y, %h = pebble.scan %x : tensor<?x?x2xf32> -> (tensor<?x?x2xf32>, tensor<?x2xf32>) {
  ^bb0(%step: tensor<?x3xf32>, %before: tensor<?x2xf32>):
    pebble.yield %before : tensor<?x2xf32>
  }
  func.return
}

// -----

func.func @main(%x: tensor<?x?x2xf32>) {
  // CHECK: expected result ?x?x2, got ?x?x3
  %y, %h = pebble.scan %x : tensor<?x?x2xf32> -> (tensor<?x?x3xf32>, tensor<?x2xf32>) {
  ^bb0(%step: tensor<?x2xf32>, %before: tensor<?x2xf32>):
    pebble.yield %before : tensor<?x2xf32>
  }
  func.return
}

// -----

func.func @main(%x: tensor<?x?x2xf32>, %o: tensor<?x2xf32>) {
  // CHECK: pebble.add in the body uses a value from outside that is no constant
  %y, %h = pebble.scan %x : tensor<?x?x2xf32> -> (tensor<?x?x2xf32>, tensor<?x2xf32>) {
  ^bb0(%step: tensor<?x2xf32>, %before: tensor<?x2xf32>):
    %s = pebble.add %before, %o : (tensor<?x2xf32>, tensor<?x2xf32>) -> tensor<?x2xf32>
    pebble.yield %s : tensor<?x2xf32>
  }
  func.return
}
